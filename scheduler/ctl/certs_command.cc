#include "scheduler/ctl/certs_command.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/security/certificate.h"
#include "common/security/peer_identity.h"
#include "common/system/file.h"
#include "common/system/secret_file.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

// Clocks of other machines may be late by as much.
constexpr absl::Duration kClockSlack = absl::Minutes(5);
constexpr absl::Duration kDay = absl::Hours(24);

// One certificate to make.
struct Wanted {
  std::string name;  // of the files, and the common name
  std::vector<std::string> uris;
};

absl::StatusOr<Wanted> ParseWanted(absl::string_view cluster,
                                   absl::string_view text) {
  Wanted wanted;
  for (const absl::string_view part : absl::StrSplit(text, '+')) {
    SYNCLINE_ASSIGN_OR_RETURN(const PeerIdentity identity,
                              ParseIdentity(cluster, part));
    wanted.uris.push_back(identity.ToUri());
  }
  wanted.name = absl::StrReplaceAll(text, {{"/", "-"}});
  return wanted;
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

absl::Status Write(const std::string& stem, const CertificateAndKey& made) {
  // The key first: who sees the certificate finds its key.
  SYNCLINE_RETURN_IF_ERROR(
      WriteSecretFile(absl::StrCat(stem, ".key"), made.key_pem));
  return WriteFileAtomically(absl::StrCat(stem, ".crt"), made.certificate_pem);
}

// The authority in the folder, made where there is none. Half of one is an
// error: a new one would make the certificates of the old one worthless.
absl::StatusOr<CertificateAndKey> FindAuthority(const CertsOptions& options,
                                                absl::Time now) {
  const std::string stem = absl::StrCat(options.dir, "/ca");
  auto certificate = ReadFile(absl::StrCat(stem, ".crt"), kPemBytesMax);
  auto key = ReadFile(absl::StrCat(stem, ".key"), kPemBytesMax);
  if (absl::IsNotFound(certificate.status()) &&
      absl::IsNotFound(key.status())) {
    SYNCLINE_ASSIGN_OR_RETURN(
        const CertificateAndKey made,
        MakeAuthority(absl::StrCat("Syncline CA of ", options.cluster),
                      now - kClockSlack, now + options.authority_days * kDay));
    SYNCLINE_RETURN_IF_ERROR(Write(stem, made));
    return made;
  }
  SYNCLINE_RETURN_IF_ERROR(certificate.status());
  SYNCLINE_RETURN_IF_ERROR(key.status());
  return CertificateAndKey{*std::move(certificate), *std::move(key)};
}

absl::StatusOr<std::vector<std::string>> Create(const CertsOptions& options) {
  const absl::Time now = absl::Now();
  std::vector<std::string> texts = options.identities;
  if (texts.empty()) {
    texts = {"scheduler", "ps", "worker", "chief", "evaluator", "client"};
  }
  std::vector<Wanted> wanted;
  for (const std::string& text : texts) {
    SYNCLINE_ASSIGN_OR_RETURN(Wanted one, ParseWanted(options.cluster, text));
    wanted.push_back(std::move(one));
  }
  SYNCLINE_RETURN_IF_ERROR(MakeDirs(options.dir));
  SYNCLINE_ASSIGN_OR_RETURN(const CertificateAndKey authority,
                            FindAuthority(options, now));
  const auto info = ReadCertificate(authority.certificate_pem);
  if (!info.ok()) return Annotate(info.status(), "ca.crt");
  if (info->not_after <= now) {
    return absl::FailedPreconditionError(absl::StrCat(
        options.dir, "/ca.crt ended at ", TimeText(info->not_after),
        "; begin in another folder with a new authority"));
  }
  // Nothing is believed longer than its authority.
  const absl::Time end = std::min(now + options.days * kDay, info->not_after);
  std::vector<std::string> written;
  for (const Wanted& one : wanted) {
    auto made =
        IssueCertificate(authority, one.name, one.uris, now - kClockSlack, end);
    if (!made.ok()) return Annotate(made.status(), one.name);
    const std::string stem = absl::StrCat(options.dir, "/", one.name);
    SYNCLINE_RETURN_IF_ERROR(Write(stem, *made));
    written.push_back(absl::StrCat(stem, ".crt"));
  }
  return written;
}

}  // namespace

int RunCertsCreate(const CertsOptions& options, const Console& console) {
  const auto written = Create(options);
  if (!written.ok()) return console.PrintError(written.status());
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "authority", absl::StrCat(options.dir, "/ca.crt"));
    auto* list =
        (*object.mutable_fields())["certificates"].mutable_list_value();
    for (const std::string& file : *written) {
      list->add_values()->set_string_value(file);
    }
    console.PrintJson(object);
    return kExitOk;
  }
  console.out << "authority " << options.dir
              << "/ca.crt; keep ca.key away from the cluster\n";
  for (const std::string& file : *written) {
    console.out << "wrote " << file << " and its .key\n";
  }
  console.out << std::flush;
  return kExitOk;
}

int RunCertsShow(const std::string& file, const Console& console) {
  const auto pem = ReadFile(file, kPemBytesMax);
  if (!pem.ok()) return console.PrintError(pem.status());
  const auto info = ReadCertificate(*pem);
  if (!info.ok()) return console.PrintError(Annotate(info.status(), file));
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "subject", info->subject);
    SetField(&object, "issuer", info->issuer);
    SetFlag(&object, "authority", info->is_authority);
    auto* uris = (*object.mutable_fields())["uris"].mutable_list_value();
    for (const std::string& uri : info->uris) {
      uris->add_values()->set_string_value(uri);
    }
    SetField(&object, "not_before", TimeText(info->not_before));
    SetField(&object, "not_after", TimeText(info->not_after));
    SetField(&object, "sha256", info->sha256);
    console.PrintJson(object);
    return kExitOk;
  }
  const absl::Duration left = info->not_after - absl::Now();
  console.out << "subject:  " << info->subject << "\n"
              << "issuer:   " << info->issuer << "\n"
              << "kind:     "
              << (info->is_authority ? "an authority" : "a certificate") << "\n"
              << "names:    " << absl::StrJoin(info->uris, ", ") << "\n"
              << "from:     " << TimeText(info->not_before) << "\n"
              << "until:    " << TimeText(info->not_after)
              << (left < absl::ZeroDuration()
                      ? " (ended)"
                      : absl::StrCat(" (", left / kDay, " days left)"))
              << "\n"
              << "SHA-256:  " << info->sha256 << std::endl;
  return kExitOk;
}

}  // namespace syncline::ctl
