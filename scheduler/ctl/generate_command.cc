#include "scheduler/ctl/generate_command.h"

#include <errno.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/job/auc.h"
#include "common/system/file.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/folder_claim.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/job_text.h"

namespace syncline::ctl {
namespace {

constexpr size_t kWriteBytes = 1 << 20;
// Two values in the smallest of the columns.
constexpr uint64_t kVocabularyMin = 260;
// Each column's values have 32 bits.
constexpr uint64_t kVocabularyMax = 10'000'000'000;

struct Logits {
  std::vector<float> clicked;
  std::vector<float> others;
};

absl::Status Check(const GenerateCriteoOptions& options) {
  const CriteoGenerator::Options& generator = options.generator;
  if (options.rows == 0) {
    return absl::InvalidArgumentError("--rows: must be at least 1");
  }
  if (options.rows > std::numeric_limits<uint64_t>::max() - options.first_row) {
    return absl::InvalidArgumentError(
        "--first-row: the last row has no number");
  }
  if (generator.vocabulary < kVocabularyMin ||
      generator.vocabulary > kVocabularyMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--vocabulary: ", generator.vocabulary, " is outside ",
                     kVocabularyMin, "..", kVocabularyMax));
  }
  if (!(generator.zipf >= 0.1 && generator.zipf <= 10)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--zipf: ", generator.zipf, " is outside [0.1, 10]"));
  }
  return absl::OkStatus();
}

// Writes the lines to `path`. Errors: errno's.
absl::StatusOr<Logits> WriteLines(const GenerateCriteoOptions& options,
                                  const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "wxe"), std::fclose);
  if (file == nullptr) return FileError(errno, "write", path);
  const CriteoGenerator generator(options.generator);
  Logits logits;
  std::string text;
  const uint64_t end = options.first_row + options.rows;
  for (uint64_t row = options.first_row; row < end; ++row) {
    const CriteoGenerator::Drawn drawn = generator.Draw(row, &text);
    (drawn.label ? logits.clicked : logits.others)
        .push_back(static_cast<float>(drawn.logit));
    if (text.size() < kWriteBytes && row + 1 < end) continue;
    if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) {
      return FileError(errno, "write", path);
    }
    text.clear();
  }
  if (std::fflush(file.get()) != 0) return FileError(errno, "write", path);
  return logits;
}

// The same into a file of its own, renamed at the end and removed after a
// failure.
absl::StatusOr<Logits> Generate(const GenerateCriteoOptions& options) {
  SYNCLINE_RETURN_IF_ERROR(Check(options));
  const std::string part = PartName(options.path);
  absl::StatusOr<Logits> logits = WriteLines(options, part);
  if (logits.ok() && std::rename(part.c_str(), options.path.c_str()) != 0) {
    logits = FileError(errno, "write", options.path);
  }
  if (!logits.ok()) std::remove(part.c_str());
  return logits;
}

}  // namespace

int RunGenerateCriteo(const GenerateCriteoOptions& options,
                      const Console& console) {
  absl::StatusOr<Logits> logits = Generate(options);
  if (!logits.ok()) return console.PrintError(logits.status());
  const size_t clicked = logits->clicked.size();
  const std::optional<double> auc =
      Auc(std::move(logits->clicked), std::move(logits->others));
  if (console.json) {
    google::protobuf::Struct object;
    SetField(&object, "path", options.path);
    auto& fields = *object.mutable_fields();
    fields["rows"].set_number_value(static_cast<double>(options.rows));
    fields["clicked"].set_number_value(static_cast<double>(clicked));
    if (auc.has_value()) fields["teacher_auc"].set_number_value(*auc);
    console.PrintJson(object);
    return kExitOk;
  }
  console.out << "wrote " << FormatCount(options.rows) << " rows to "
              << options.path << ", "
              << absl::StrFormat("%.1f%%", 100.0 * clicked / options.rows)
              << " with label 1";
  if (auc.has_value()) {
    console.out << absl::StrFormat("; the teacher's own AUC is %.4f", *auc);
  }
  console.out << std::endl;
  return kExitOk;
}

}  // namespace syncline::ctl
