// Goal: no file of data, whatever its bytes, crashes a worker, and what is
// taken has as many values as the job asks for, all finite, and classes that
// there are. Method: the first byte says what the rest is: a file of one of the
// formats, plain or gzip, which a job reads to its last sample.

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/system/file.h"
#include "google/protobuf/text_format.h"
#include "worker/data/dataset.h"

namespace syncline::worker {
namespace {

constexpr int kClasses = 3;
constexpr int64_t kSamplesMax = 256;

// How a job reads the file "f".
struct Reading {
  char kind;
  const char* data;  // DataSpec
  std::vector<FeedShape> feeds;
  int classes;  // 0: the label is any number
  int64_t label_width = 1;
};

const std::vector<Reading>& Readings() {
  static const auto* const readings = new std::vector<Reading>{
      {'c',
       "train { csv { path: 'f' has_header: true list_delimiter: '|' } } "
       "feeds { input: 'a' field: 'a' scale: 0.5 } "
       "feeds { input: 'b' field: 'b' padding: -1 } label { field: 'y' }",
       {{1}, {.elements = 4, .integers = true}},
       kClasses},
      {'n',
       "train { csv { path: 'f' } } feeds { input: 'a' field: '0:2' } "
       "label { field: '2' }",
       {{2}},
       0},
      {'l',
       "train { libsvm { path: 'f' } } "
       "feeds { input: 'i' field: 'indices' padding: -1 } "
       "feeds { input: 'v' field: 'values' } label { field: 'label' }",
       {{.elements = 4, .integers = true}, {4}},
       kClasses},
      {'d',
       "train { libsvm { path: 'f' dimension: 8 } } "
       "feeds { input: 'x' field: 'features' } label { field: 'label' }",
       {{8}},
       0},
      {'k',
       "train { criteo { path: 'f' } } "
       "feeds { input: 'x' field: 'dense' } "
       "feeds { input: 'k' field: 'categories' } label { field: 'label' }",
       {{13}, {.elements = 26, .integers = true}},
       2},
      {'b',
       "train { tokens { path: 'f' format: BYTES vocabulary: 128 } } "
       "feeds { input: 't' field: 'tokens' } label { field: 'next' }",
       {{.elements = 4, .integers = true}},
       128,
       4},
      {'u',
       "train { tokens { path: 'f' format: UINT16 vocabulary: 128 } } "
       "feeds { input: 't' field: 'tokens' } label { field: 'next' }",
       {{.elements = 4, .integers = true}},
       128,
       4},
      {'t',
       "train { tokens { path: 'f' format: NPY vocabulary: 128 } } "
       "feeds { input: 't' field: 'tokens' } label { field: 'next' }",
       {{.elements = 4, .integers = true}},
       128,
       4},
      {'i',
       "train { idx { images: 'f' labels: 'labels' } } "
       "feeds { input: 'x' field: 'image' } label { field: 'label' }",
       {{4}},
       kClasses},
      {'j',
       "train { idx { images: 'images' labels: 'f' } } "
       "feeds { input: 'x' field: 'image' } label { field: 'label' }",
       {{4}},
       kClasses},
      {'p',
       "train { npy { arrays { field: 'x' path: 'f' } "
       "arrays { field: 'y' path: 'f' } } } "
       "feeds { input: 'x' field: 'x' } label { field: 'y' }",
       {{1}},
       0},
      {'q',
       "train { npy { arrays { field: 'x' path: 'f' } "
       "arrays { field: 'y' path: 'f' } } } "
       "feeds { input: 'x' field: 'x' } label { field: 'y' }",
       {{.elements = 1, .integers = true}},
       kClasses}};
  return *readings;
}

// A folder in memory where there is one, with the second file of IDX.
class Folder {
 public:
  Folder() {
    path_ = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    absl::StrAppend(&path_, "/syncline-data-file-fuzz-XXXXXX");
    SYNCLINE_CHECK(mkdtemp(path_.data()) != nullptr);
    Write("labels", absl::string_view("\0\0\x8\x1\0\0\0\x2\0\x2", 10));
    Write("images",
          absl::string_view(
              "\0\0\x8\x3\0\0\0\x2\0\0\0\x2\0\0\0\x2\1\2\3\4\5\6\7\x8", 24));
    std::atexit([] { SYNCLINE_CHECK(RemoveTree(Get().path_).ok()); });
  }
  // Never destroyed: the files go at the end of the process.
  static Folder& Get() {
    static Folder* const folder = new Folder;
    return *folder;
  }
  void Write(absl::string_view name, absl::string_view bytes) const {
    std::FILE* const file =
        std::fopen(absl::StrCat(path_, "/", name).c_str(), "wb");
    SYNCLINE_CHECK(file != nullptr);
    SYNCLINE_CHECK(std::fwrite(bytes.data(), 1, bytes.size(), file) ==
                   bytes.size());
    SYNCLINE_CHECK(std::fclose(file) == 0);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void CheckSamples(const Reading& reading, const Dataset& dataset) {
  SYNCLINE_CHECK(dataset.size() > 0);
  std::vector<int64_t> indices(std::min(dataset.size(), kSamplesMax));
  std::iota(indices.begin(), indices.end(), dataset.size() - indices.size());
  Batch batch;
  dataset.Read(indices, &batch);
  SYNCLINE_CHECK(batch.size == static_cast<int64_t>(indices.size()));
  for (size_t i = 0; i < reading.feeds.size(); ++i) {
    const FeedShape& feed = reading.feeds[i];
    const size_t count = indices.size() * static_cast<size_t>(feed.elements);
    if (feed.integers) {
      SYNCLINE_CHECK(batch.int_feeds[i].size() == count);
      continue;
    }
    SYNCLINE_CHECK(batch.feeds[i].size() == count);
    for (const float value : batch.feeds[i]) {
      SYNCLINE_CHECK(std::isfinite(value));
    }
  }
  SYNCLINE_CHECK(batch.labels.size() ==
                 indices.size() * static_cast<size_t>(reading.label_width));
  for (const float label : batch.labels) {
    SYNCLINE_CHECK(std::isfinite(label));
    if (reading.classes == 0) continue;
    SYNCLINE_CHECK(label >= 0 && label < static_cast<float>(reading.classes) &&
                   label == std::floor(label));
  }
}

void Run(absl::string_view input) {
  if (input.empty()) return;
  for (const Reading& reading : Readings()) {
    if (reading.kind != input[0]) continue;
    const Folder& folder = Folder::Get();
    folder.Write("f", input.substr(1));
    DataSpec spec;
    SYNCLINE_CHECK(
        google::protobuf::TextFormat::ParseFromString(reading.data, &spec));
    const auto dataset =
        Dataset::Open(spec.train(), spec, folder.path(), reading.feeds,
                      reading.classes, reading.label_width, folder.path());
    if (dataset.ok()) CheckSamples(reading, **dataset);
    return;
  }
}

}  // namespace
}  // namespace syncline::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  syncline::worker::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
