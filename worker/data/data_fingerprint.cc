#include "worker/data/data_fingerprint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/job/job_spec_fields.h"
#include "common/system/file.h"
#include "common/system/file_descriptor.h"
#include "common/system/file_version.h"
#include "worker/data/reading/input_file.h"

namespace syncline::worker {
namespace {

// Two sources of this size fit into a message.
constexpr int kFilesMax = 4096;
constexpr size_t kNameBytesMax = 256 << 10;
constexpr uint64_t kEndBytes = 64 << 10;
constexpr int64_t kDrawnSamples = 16;

// True if a feed or the label reads `field`.
bool IsRead(const DataSpec& data, absl::string_view field) {
  return field == LabelField(data.label()) ||
         absl::c_any_of(data.feeds(), [field](const Feed& feed) {
           return feed.field() == field || MeasuredField(feed.field()) == field;
         });
}

// Of the files that are read, in order.
std::vector<std::string> PatternsOf(const DataSource& source,
                                    const DataSpec& data) {
  std::vector<std::string> patterns;
  switch (source.format_case()) {
    case DataSource::kIdx:
      if (IsRead(data, "image")) patterns.push_back(source.idx().images());
      if (IsRead(data, "label")) patterns.push_back(source.idx().labels());
      return patterns;
    case DataSource::kCsv:
      return {source.csv().path()};
    case DataSource::kLibsvm:
      return {source.libsvm().path()};
    case DataSource::kCriteo:
      return {source.criteo().path()};
    case DataSource::kTokens:
      return {source.tokens().path()};
    case DataSource::kNpy:
      for (const NpySource::Array& array : source.npy().arrays()) {
        if (IsRead(data, array.field())) patterns.push_back(array.path());
      }
      return patterns;
    case DataSource::kDigits:
    case DataSource::FORMAT_NOT_SET:
      return patterns;
  }
  return patterns;
}

// Of [begin, end) of the file.
absl::StatusOr<uint32_t> ExtendByPart(const std::string& path, int fd,
                                      uint64_t begin, uint64_t end,
                                      uint32_t crc) {
  std::string buffer(end - begin, '\0');
  size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got = pread(fd, buffer.data() + done, buffer.size() - done,
                              static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, "read", path);
    if (got == 0) break;
    done += got;
  }
  return ExtendCrc32c(crc, absl::string_view(buffer.data(), done));
}

absl::StatusOr<DataFingerprint::File> FingerprintOfFile(
    const DataFile& data_file) {
  const std::string& path = data_file.path;
  SYNCLINE_ASSIGN_OR_RETURN(const FileDescriptor fd, OpenForReading(data_file));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return FileError(errno, "read", path);
  const uint64_t size = info.st_size;
  const uint64_t first_end = std::min(size, kEndBytes);
  const uint64_t last_begin = std::max(first_end, size - first_end);
  DataFingerprint::File file;
  file.set_name(
      Utf8Text(absl::Utf8SafeCHexEscape(NameBelow(data_file.root, path))));
  file.set_size_bytes(size);
  SYNCLINE_ASSIGN_OR_RETURN(uint32_t crc,
                            ExtendByPart(path, fd.get(), 0, first_end, 0));
  SYNCLINE_ASSIGN_OR_RETURN(
      crc, ExtendByPart(path, fd.get(), last_begin, size, crc));
  file.set_crc32c(crc);
  return file;
}

template <typename T>
uint32_t ExtendByValues(uint32_t crc, const std::vector<T>& values) {
  return ExtendCrc32c(
      crc, absl::string_view(reinterpret_cast<const char*>(values.data()),
                             values.size() * sizeof(T)));
}

uint32_t Crc32cOfSamples(const Dataset& dataset) {
  std::vector<int64_t> samples(std::min(dataset.size(), kDrawnSamples));
  std::iota(samples.begin(), samples.end(), 0);
  Batch batch;
  dataset.Read(samples, &batch);
  uint32_t crc = ExtendByValues(0, batch.labels);
  for (const auto& values : batch.feeds) crc = ExtendByValues(crc, values);
  for (const auto& values : batch.int_feeds) crc = ExtendByValues(crc, values);
  return crc;
}

}  // namespace

absl::StatusOr<DataFingerprint::Source> FingerprintOf(absl::string_view field,
                                                      const DataSource& source,
                                                      const DataSpec& data,
                                                      const DataRoot& root,
                                                      const Dataset& dataset) {
  DataFingerprint::Source print;
  print.set_field(std::string(field));
  print.set_samples(dataset.size());
  const std::vector<std::string> patterns = PatternsOf(source, data);
  if (patterns.empty()) {
    print.set_crc32c(Crc32cOfSamples(dataset));
    return print;
  }
  uint32_t crc = 0;
  size_t name_bytes = 0;
  for (const std::string& pattern : patterns) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto found, FindFiles(pattern, root));
    print.set_file_count(print.file_count() + found.size());
    for (const DataFile& data_file : found) {
      SYNCLINE_ASSIGN_OR_RETURN(const DataFingerprint::File file,
                                FingerprintOfFile(data_file));
      crc = ExtendCrc32c(crc, file.SerializeAsString());
      name_bytes += file.name().size();
      if (print.files_size() < kFilesMax && name_bytes <= kNameBytesMax) {
        *print.add_files() = file;
      }
    }
  }
  print.set_crc32c(crc);
  return print;
}

absl::StatusOr<std::string> VersionOfFiles(const DataSource& source,
                                           const DataSpec& data,
                                           const DataRoot& root) {
  std::string version;
  for (const std::string& pattern : PatternsOf(source, data)) {
    SYNCLINE_ASSIGN_OR_RETURN(const auto found, FindFiles(pattern, root));
    for (const DataFile& file : found) {
      SYNCLINE_ASSIGN_OR_RETURN(const FileDescriptor fd, OpenForReading(file));
      absl::StrAppend(&version, file.path, "\n", FileVersion(fd.get()), "\n");
    }
  }
  return version;
}

}  // namespace syncline::worker
