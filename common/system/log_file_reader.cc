#include "common/system/log_file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/system/file.h"

namespace syncline {
namespace {

constexpr char kGap[] = "msg=\"lines of this log may be missing here\"\n";
constexpr char kCut[] = "...\n";

// Not valid: there is no such file. A link is none of ours.
absl::StatusOr<FileDescriptor> OpenToRead(const std::string& path) {
  FileDescriptor file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid() && errno != ENOENT) return FileError(errno, "open", path);
  return file;
}

bool AreSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool IsFile(const FileDescriptor& file, const std::string& path) {
  struct stat opened = {};
  struct stat named = {};
  return fstat(file.get(), &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         AreSame(opened, named);
}

// Up to `bytes` more of `file` behind *to; 0: there are none.
absl::StatusOr<size_t> ReadMore(const FileDescriptor& file, size_t bytes,
                                const std::string& path, std::string* to) {
  const size_t before = to->size();
  to->resize(before + bytes);
  ssize_t n = 0;
  do {
    n = read(file.get(), to->data() + before, bytes);
  } while (n < 0 && errno == EINTR);
  const int error = errno;
  to->resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (n < 0) return FileError(error, "read", path);
  return static_cast<size_t>(n);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogFileReader>> LogFileReader::Open(
    const std::string& path, uint64_t tail_lines) {
  auto reader = absl::WrapUnique(new LogFileReader(path));
  SYNCLINE_RETURN_IF_ERROR(reader->OpenFiles());
  if (tail_lines == 0) return reader;
  SYNCLINE_ASSIGN_OR_RETURN(const uint64_t lines, reader->CountLines());
  reader->skip_lines_ = lines - std::min(lines, tail_lines);
  return reader;
}

absl::Status LogFileReader::OpenFiles() {
  SYNCLINE_ASSIGN_OR_RETURN(FileDescriptor file, OpenToRead(path_));
  SYNCLINE_ASSIGN_OR_RETURN(FileDescriptor earlier,
                            OpenToRead(absl::StrCat(path_, ".1")));
  // A rotation between the two opens makes them one file.
  const bool is_one = file.valid() && earlier.valid() &&
                      IsFile(file, absl::StrCat(path_, ".1"));
  if (earlier.valid() && !is_one) files_.push_back(std::move(earlier));
  if (file.valid()) files_.push_back(std::move(file));
  return files_.empty() ? FileError(ENOENT, "open", path_) : absl::OkStatus();
}

absl::StatusOr<uint64_t> LogFileReader::CountLines() {
  uint64_t lines = 0;
  std::string piece;
  for (const FileDescriptor& file : files_) {
    bool is_torn = false;
    for (;;) {
      piece.clear();
      SYNCLINE_ASSIGN_OR_RETURN(const size_t bytes,
                                ReadMore(file, kPieceBytesMax, path_, &piece));
      if (bytes == 0) break;
      lines +=
          static_cast<uint64_t>(std::count(piece.begin(), piece.end(), '\n'));
      is_torn = piece.back() != '\n';
    }
    // Fill ends the torn line of an earlier file.
    if (is_torn && &file != &files_.back()) ++lines;
    if (lseek(file.get(), 0, SEEK_SET) < 0) {
      return FileError(errno, "read", path_);
    }
  }
  return lines;
}

absl::StatusOr<std::string> LogFileReader::Next() {
  for (;;) {
    if (cuts_line_) {
      const size_t end = buffer_.find('\n');
      cuts_line_ = end == buffer_.npos;
      buffer_.erase(0, cuts_line_ ? buffer_.npos : end + 1);
    }
    std::string piece;
    if (const size_t end = buffer_.rfind('\n', kPieceBytesMax - 1);
        end != buffer_.npos) {
      piece = buffer_.substr(0, end + 1);
      buffer_.erase(0, end + 1);
    } else if (buffer_.size() >= kPieceBytesMax) {
      piece =
          absl::StrCat(buffer_.substr(0, kPieceBytesMax - sizeof(kCut)), kCut);
      buffer_.erase(0, kPieceBytesMax - sizeof(kCut));
      cuts_line_ = true;
    } else {
      SYNCLINE_ASSIGN_OR_RETURN(const bool more, Fill());
      if (!more) return "";
      continue;
    }
    size_t begin = 0;
    for (; skip_lines_ > 0 && begin < piece.size(); --skip_lines_) {
      begin = piece.find('\n', begin) + 1;
    }
    piece.erase(0, begin);
    if (!piece.empty()) return piece;
  }
}

absl::StatusOr<bool> LogFileReader::Fill() {
  SYNCLINE_ASSIGN_OR_RETURN(
      const size_t bytes,
      ReadMore(files_.front(), kPieceBytesMax - buffer_.size(), path_,
               &buffer_));
  if (bytes > 0) return true;
  if (files_.size() == 1) return FollowRotation();
  // An earlier file grows no more.
  EndTornLine();
  files_.pop_front();
  return true;
}

void LogFileReader::EndTornLine() {
  if (!buffer_.empty() || cuts_line_) buffer_.push_back('\n');
}

absl::StatusOr<bool> LogFileReader::FollowRotation() {
  const std::string earlier_path = absl::StrCat(path_, ".1");
  if (IsFile(files_.front(), path_)) return false;
  SYNCLINE_ASSIGN_OR_RETURN(FileDescriptor file, OpenToRead(path_));
  if (!file.valid() || IsFile(files_.front(), path_)) return false;
  if (!IsFile(files_.front(), earlier_path)) {
    // It was rotated more than once.
    EndTornLine();
    buffer_.append(kGap);
    SYNCLINE_ASSIGN_OR_RETURN(FileDescriptor earlier, OpenToRead(earlier_path));
    if (earlier.valid() && !IsFile(file, earlier_path)) {
      files_.push_back(std::move(earlier));
    }
  }
  files_.push_back(std::move(file));
  return true;
}

std::string LogFileReader::TakeTornLine() {
  if (buffer_.empty()) return "";
  std::string line = std::exchange(buffer_, std::string());
  if (cuts_line_ || skip_lines_ > 0) return "";
  line.push_back('\n');
  return line;
}

}  // namespace syncline
