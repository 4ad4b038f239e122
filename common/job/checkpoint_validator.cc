#include "common/job/checkpoint_validator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "common/job/job_spec_fields.h"
#include "common/job/strategy_rules.h"

namespace syncline {
namespace {

constexpr size_t kDirectoryBytesMax = 1024;
constexpr uint32_t kFullTablesEveryMax = 1000;

bool HasControlCharacter(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
}

void CheckDirectory(const std::string& directory, Problems* problems) {
  constexpr char kPath[] = "checkpoint.directory";
  if (directory.empty()) return;
  if (directory[0] != '/') {
    problems->Add(
        kPath, QuoteText(directory),
        " is not absolute: all ps, or all workers without ps, must see the "
        "same folder there");
  }
  if (HasControlCharacter(directory) || directory.size() > kDirectoryBytesMax) {
    problems->Add(kPath, "has a control character, or more than ",
                  kDirectoryBytesMax, " bytes");
  }
}

}  // namespace

void CheckCheckpoint(const JobSpec& spec, Problems* problems) {
  if (!spec.has_checkpoint()) return;
  const CheckpointSpec& checkpoint = spec.checkpoint();
  if (checkpoint.every_clocks() == 0 && checkpoint.every_seconds() == 0) {
    problems->Add("checkpoint",
                  "says not when one is made: set every_clocks, every_seconds "
                  "or both");
  }
  problems->AtMost("checkpoint.every_clocks", checkpoint.every_clocks(),
                   uint64_t{1} << 40);
  problems->AtMost("checkpoint.keep_every", checkpoint.keep_every(),
                   uint64_t{1} << 40);
  const double seconds = checkpoint.every_seconds();
  // Negated, so that NaN is out of it.
  if (seconds != 0 && !(seconds >= 1 && seconds <= 1e9)) {
    problems->Add("checkpoint.every_seconds", seconds,
                  " is out of range, must be 1 to 1e+09, or 0 for none by "
                  "time");
  }
  problems->AtMost("checkpoint.keep_last", checkpoint.keep_last(), 1000);
  const uint32_t full_every = checkpoint.full_tables_every();
  problems->AtMost("checkpoint.full_tables_every", full_every,
                   kFullTablesEveryMax);
  if (full_every > 1 && full_every <= kFullTablesEveryMax &&
      spec.tables_size() == 0) {
    problems->Add("checkpoint.full_tables_every", full_every,
                  " is for jobs with tables, and this one has none: leave it "
                  "out");
  }
  CheckDirectory(checkpoint.directory(), problems);
  if (ReducesAmongWorkers(spec) && checkpoint.directory().empty()) {
    problems->Add("checkpoint.directory", "is required with strategy ",
                  Strategy_Name(spec.strategy()),
                  ": workers write their parts there, and have no "
                  "--checkpoint-dir");
  }
}

void FillCheckpoint(JobSpec* spec) {
  if (!spec->has_checkpoint()) return;
  if (spec->checkpoint().keep_last() == 0) {
    spec->mutable_checkpoint()->set_keep_last(2);
  }
}

}  // namespace syncline
