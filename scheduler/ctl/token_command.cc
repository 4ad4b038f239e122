#include "scheduler/ctl/token_command.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/security/user_tokens.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"
#include "common/system/secret_file.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

// Another process has the lock for some milliseconds.
constexpr absl::Duration kLockPatience = absl::Seconds(10);
constexpr absl::Duration kLockRetry = absl::Milliseconds(20);

// A file that is not there is an empty one.
absl::StatusOr<std::vector<TokenEntry>> Read(const std::string& file) {
  const auto text = ReadFile(file, kTokenFileBytesMax);
  if (absl::IsNotFound(text.status())) return std::vector<TokenEntry>();
  SYNCLINE_RETURN_IF_ERROR(text.status());
  auto entries = ParseTokens(*text);
  if (!entries.ok()) return Annotate(entries.status(), file);
  return entries;
}

// Excludes other processes that change `file`, from reading it to writing it,
// for as long as what it returns lives. FILE.lock stays: whoever removed it
// could let two in. Errors: Unavailable: another process has it for too long.
absl::StatusOr<FileDescriptor> Lock(const std::string& file) {
  const std::string path = absl::StrCat(file, ".lock");
  FileDescriptor lock(
      open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return FileError(errno, "open", path);
  const absl::Time deadline = MonotonicNow() + kLockPatience;
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return FileError(errno, "lock", path);
    }
    if (MonotonicNow() >= deadline) {
      return absl::UnavailableError(
          absl::StrCat(path, " is locked by another process; try again"));
    }
    Mutex mu;
    CondVar never;
    MutexLock wait(&mu);
    never.WaitUntil(&mu, MonotonicNow() + kLockRetry);
  }
  return lock;
}

auto Named(const std::string& name) {
  return [&name](const TokenEntry& entry) { return entry.name == name; };
}

absl::StatusOr<std::string> Create(const TokenOptions& options) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto lock, Lock(options.file));
  SYNCLINE_ASSIGN_OR_RETURN(std::vector<TokenEntry> entries,
                            Read(options.file));
  TokenEntry entry;
  entry.name = options.name;
  SYNCLINE_ASSIGN_OR_RETURN(entry.role, ParseUserRole(options.role));
  entry.tenant = options.tenant;
  if (options.days > 0) {
    entry.expiry = absl::Now() + options.days * absl::Hours(24);
  }
  SYNCLINE_ASSIGN_OR_RETURN(std::string token, NewToken());
  entry.sha256 = HashToken(token);
  entries.push_back(entry);
  // The scheduler must be able to read what is written.
  const std::string text = FormatTokens(entries);
  SYNCLINE_RETURN_IF_ERROR(ParseTokens(text).status());
  SYNCLINE_RETURN_IF_ERROR(ReplaceSecretFile(options.file, text));
  return token;
}

absl::Status Revoke(const TokenOptions& options) {
  SYNCLINE_ASSIGN_OR_RETURN(const auto lock, Lock(options.file));
  SYNCLINE_ASSIGN_OR_RETURN(std::vector<TokenEntry> entries,
                            Read(options.file));
  const auto kept =
      std::remove_if(entries.begin(), entries.end(), Named(options.name));
  if (kept == entries.end()) {
    return absl::NotFoundError(
        absl::StrCat(options.file, " has no token of ", options.name));
  }
  entries.erase(kept, entries.end());
  return ReplaceSecretFile(options.file, FormatTokens(entries));
}

std::string ExpiryText(const TokenEntry& entry) {
  if (entry.expiry == absl::InfiniteFuture()) return "never expires";
  return absl::StrCat(entry.expiry <= absl::Now() ? "expired " : "expires ",
                      absl::FormatTime("%Y-%m-%d %H:%M UTC", entry.expiry,
                                       absl::UTCTimeZone()));
}

}  // namespace

int RunTokenCreate(const TokenOptions& options, const Console& console) {
  const auto token = Create(options);
  if (!token.ok()) return console.PrintError(token.status());
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "name", options.name);
    SetField(&object, "role", options.role);
    if (!options.tenant.empty()) SetField(&object, "tenant", options.tenant);
    SetField(&object, "token", *token);
    console.PrintJson(object);
  } else {
    console.out << *token << std::endl;
  }
  return kExitOk;
}

int RunTokenList(const TokenOptions& options, const Console& console) {
  const auto entries = Read(options.file);
  if (!entries.ok()) return console.PrintError(entries.status());
  for (const TokenEntry& entry : *entries) {
    if (console.json) {
      google::protobuf::Struct object;
      SetField(&object, "name", entry.name);
      SetField(&object, "role", UserRoleName(entry.role));
      if (!entry.tenant.empty()) SetField(&object, "tenant", entry.tenant);
      SetField(&object, "expiry", ExpiryText(entry));
      console.PrintJson(object);
    } else {
      console.out << entry.name << "  " << UserRoleName(entry.role) << "  "
                  << ExpiryText(entry);
      if (!entry.tenant.empty()) console.out << "  tenant " << entry.tenant;
      console.out << "\n";
    }
  }
  console.out << std::flush;
  return kExitOk;
}

int RunTokenRevoke(const TokenOptions& options, const Console& console) {
  const absl::Status revoked = Revoke(options);
  if (!revoked.ok()) return console.PrintError(revoked);
  if (!console.json) console.out << "revoked" << std::endl;
  return kExitOk;
}

absl::StatusOr<std::string> FindToken(const std::string& token,
                                      const std::string& file) {
  std::string found = token;
  if (found.empty() && !file.empty()) {
    SYNCLINE_ASSIGN_OR_RETURN(found, ReadFile(file, /*bytes_max=*/16384));
  }
  found = std::string(absl::StripAsciiWhitespace(found));
  const bool plain = std::all_of(found.begin(), found.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  // gRPC ends the process over metadata that has other characters.
  if (plain) return found;
  return absl::InvalidArgumentError(
      "SYNCLINE_TOKEN, or the file of SYNCLINE_TOKEN_FILE, is no token");
}

}  // namespace syncline::ctl
