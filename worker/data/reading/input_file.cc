#include "worker/data/reading/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"
#include "worker/data/reading/boundary.h"
#include "worker/data/reading/read_watch.h"

namespace syncline::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBufferBytes = 256 << 10;
// A ReadWatch is asked before each; even a slow disk needs no second for it.
constexpr size_t kReadBytesMax = 16 << 20;
constexpr unsigned char kGzipMagic[2] = {0x1f, 0x8b};
// Deflate cannot do better; Deutsch, RFC 1951: 258 bytes from two bits.
constexpr uint64_t kDeflateRatioMax = 1032;

// A directory or a pipe would read as an odd error, or never end.
absl::Status CheckRegularFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return FileError(errno, "read", path);
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a directory, not a file"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a regular file"));
  }
  if (faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) != 0) {
    return FileError(errno, "read", path);
  }
  return absl::OkStatus();
}

bool IsPattern(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos;
}

absl::Status NoMatch(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, ": no file matches"));
}

absl::StatusOr<std::vector<std::string>> ExpandGlob(const std::string& path) {
  glob_t matches = {};
  const int rc = glob(path.c_str(), GLOB_NOSORT, nullptr, &matches);
  std::vector<std::string> paths(matches.gl_pathv,
                                 matches.gl_pathv + matches.gl_pathc);
  globfree(&matches);
  if (rc != 0 || paths.empty()) return NoMatch(path);
  std::sort(paths.begin(), paths.end());  // glob's own order is the locale's
  return paths;
}

absl::StatusOr<std::vector<std::string>> FindAbsolute(const std::string& path) {
  std::vector<std::string> paths = {path};
  if (IsPattern(path) && access(path.c_str(), F_OK) != 0) {
    SYNCLINE_ASSIGN_OR_RETURN(paths, ExpandGlob(path));
  }
  for (const std::string& found : paths) {
    SYNCLINE_RETURN_IF_ERROR(CheckRegularFile(found));
  }
  return paths;
}

// FindAbsolute of `path` where the root is a boundary.
absl::StatusOr<std::vector<std::string>> FindWithin(const DataRoot& root,
                                                    const std::string& path) {
  std::vector<std::string> paths = {path};
  if (IsPattern(path)) {
    SYNCLINE_ASSIGN_OR_RETURN(paths, MatchWithin(root, path));
    if (paths.empty()) return NoMatch(path);
  }
  for (const std::string& found : paths) {
    SYNCLINE_RETURN_IF_ERROR(OpenWithin(root, found).status());
  }
  return paths;
}

class PlainFile : public InputFile {
 public:
  PlainFile(std::string path, FileDescriptor fd, uint64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  absl::StatusOr<size_t> Read(char* out, size_t count) override {
    size_t done = 0;
    while (done < count) {
      const size_t next = std::min(count - done, kReadBytesMax);
      SYNCLINE_RETURN_IF_ERROR(ReadWatch::BeforeRead(path_, next));
      const ssize_t got = read(fd_.get(), out + done, next);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        return FileError(errno, "read", path_);
      }
      if (got == 0) break;
      done += got;
    }
    return done;
  }
  uint64_t size_bound() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  const std::string path_;
  FileDescriptor fd_;
  const uint64_t size_;
};

class GzipFile : public InputFile {
 public:
  explicit GzipFile(std::unique_ptr<InputFile> packed)
      : packed_(std::move(packed)), buffer_(kBufferBytes) {
    // The largest window, gzip framing.
    SYNCLINE_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK);
  }
  ~GzipFile() override { inflateEnd(&stream_); }

  absl::StatusOr<size_t> Read(char* out, size_t count) override {
    size_t done = 0;
    while (done < count && !finished_) {
      SYNCLINE_ASSIGN_OR_RETURN(const bool more, HavePacked());
      if (!more) {
        return absl::DataLossError(absl::StrCat(path(), ": truncated gzip"));
      }
      // zlib counts in 32 bits.
      const size_t room = std::min<size_t>(count - done, 1 << 30);
      stream_.next_out = reinterpret_cast<Bytef*>(out + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int rc = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (rc == Z_STREAM_END) {
        SYNCLINE_RETURN_IF_ERROR(EndMember());
      } else if (rc != Z_OK) {
        return absl::DataLossError(
            absl::StrCat(path(), ": corrupt gzip: ",
                         stream_.msg != nullptr ? stream_.msg : "no progress"));
      }
    }
    return done;
  }
  uint64_t size_bound() const override {
    return packed_->size_bound() * kDeflateRatioMax;
  }
  const std::string& path() const override { return packed_->path(); }

 private:
  // Reads on once the packed bytes are used up; false at the end of the file.
  absl::StatusOr<bool> HavePacked() {
    if (stream_.avail_in == 0) {
      SYNCLINE_ASSIGN_OR_RETURN(const size_t got,
                                packed_->Read(buffer_.data(), buffer_.size()));
      stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
      stream_.avail_in = static_cast<uInt>(got);
    }
    return stream_.avail_in > 0;
  }

  // A gzip file may be several, one after the other; RFC 1952 section 2.2.
  absl::Status EndMember() {
    SYNCLINE_ASSIGN_OR_RETURN(const bool more, HavePacked());
    finished_ = !more;
    if (finished_) return absl::OkStatus();
    if (stream_.next_in[0] != kGzipMagic[0]) {
      return absl::DataLossError(
          absl::StrCat(path(), ": bytes after the end of the gzip data"));
    }
    inflateReset(&stream_);
    return absl::OkStatus();
  }

  std::unique_ptr<InputFile> packed_;
  std::vector<char> buffer_;
  z_stream stream_ = {};
  bool finished_ = false;
};

// Of `pattern`, which leads outside of `root`, as `found` says.
absl::Status Outside(const absl::Status& found, absl::string_view pattern,
                     const DataRoot& root) {
  if (LeadsToTenants(found)) return found;
  if (root.tenant.empty()) return OutsideError(pattern);
  return absl::PermissionDeniedError(absl::StrCat(
      "\"", pattern, "\" leads outside the folder of tenant ", root.tenant,
      ", and jobs of a tenant read no data from anywhere else"));
}

}  // namespace

absl::StatusOr<std::vector<DataFile>> FindFiles(absl::string_view pattern,
                                                const DataRoot& data_root) {
  if (pattern.empty() || absl::StrContains(pattern, '\0')) {
    return absl::InvalidArgumentError("the path is empty or has a zero byte");
  }
  const fs::path asked{std::string(pattern)};
  const std::string root = AbsolutePath(data_root);
  const std::string path = (fs::path(root) / asked).lexically_normal();
  const auto found =
      data_root.bounded ? FindWithin(data_root, path) : FindAbsolute(path);
  if (found.ok()) {
    std::vector<DataFile> files;
    for (const std::string& file : *found) files.emplace_back(file, data_root);
    return files;
  }
  const absl::Status status = IsOutside(found.status())
                                  ? Outside(found.status(), pattern, data_root)
                                  : found.status();
  if (asked.is_absolute()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), " (\"", pattern,
                                   "\" below data_root \"", root, "\")"));
}

absl::StatusOr<FileDescriptor> OpenForReading(const DataFile& file) {
  if (file.root.bounded) return OpenWithin(file.root, file.path);
  SYNCLINE_RETURN_IF_ERROR(CheckRegularFile(file.path));
  FileDescriptor fd(open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FileError(errno, "read", file.path);
  return fd;
}

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::Open(const DataFile& file,
                                                           Gzip gzip) {
  const std::string& path = file.path;
  SYNCLINE_ASSIGN_OR_RETURN(FileDescriptor fd, OpenForReading(file));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return FileError(errno, "read", path);
  unsigned char magic[2] = {};
  const bool may_be_gzip =
      gzip == Gzip::kByBytes || absl::EndsWithIgnoreCase(path, ".gz");
  const bool is_gzip = may_be_gzip && pread(fd.get(), magic, 2, 0) == 2 &&
                       std::equal(magic, magic + 2, kGzipMagic);
  auto plain = std::make_unique<PlainFile>(path, std::move(fd), info.st_size);
  if (!is_gzip) return plain;
  return std::make_unique<GzipFile>(std::move(plain));
}

absl::Status ReadExactly(InputFile* file, char* out, size_t count) {
  SYNCLINE_ASSIGN_OR_RETURN(const size_t got, file->Read(out, count));
  if (got == count) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      file->path(), ": truncated: ", count - got, " bytes are missing"));
}

}  // namespace syncline::worker
