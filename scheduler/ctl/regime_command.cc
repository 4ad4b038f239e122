#include "scheduler/ctl/regime_command.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/job/regime_rules.h"
#include "scheduler/ctl/jobs_client.h"
#include "scheduler/ctl/text/exit_codes.h"

namespace syncline::ctl {
namespace {

// "bounded-staleness" and "BOUNDED_STALENESS" are one.
std::string Name(const std::string& text) {
  return absl::AsciiStrToUpper(absl::StrReplaceAll(text, {{"-", "_"}}));
}

absl::Status NoSuch(const std::string& option, const std::string& text,
                    const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": '", text, "' is none; expected ", expected));
}

}  // namespace

absl::StatusOr<RegimeChange> ParseRegimeChange(const RegimeOptions& options) {
  RegimeChange change;
  if (!options.mode.empty()) {
    ConsistencySpec::Mode mode;
    const std::string name =
        Name(options.mode) == "SSP" ? "BOUNDED_STALENESS" : Name(options.mode);
    if (!ConsistencySpec::Mode_Parse(name, &mode) ||
        mode == ConsistencySpec::MODE_UNSPECIFIED) {
      return NoSuch("--mode", options.mode, "sync, bounded-staleness or async");
    }
    change.set_mode(mode);
  }
  if (options.bound.has_value()) change.set_staleness_bound(*options.bound);
  if (options.learning_rate_factor.has_value()) {
    change.set_learning_rate_factor(*options.learning_rate_factor);
  }
  if (!options.strategy.empty()) {
    Strategy strategy;
    if (!Strategy_Parse(Name(options.strategy), &strategy) ||
        strategy == STRATEGY_UNSPECIFIED) {
      return NoSuch("--strategy", options.strategy,
                    "parameter-server, all-reduce or sharded");
    }
    change.set_strategy(strategy);
  }
  if (options.sharding_stage.has_value()) {
    if (*options.sharding_stage == 0 || change.strategy() != SHARDED) {
      return absl::InvalidArgumentError(
          "--sharding-stage: 1 or 2, with --strategy sharded");
    }
    change.set_sharding_stage(*options.sharding_stage);
  }
  if (!options.wire_type.empty()) {
    WireType type;
    if (!WireType_Parse(absl::StrCat("WIRE_", Name(options.wire_type)),
                        &type)) {
      return NoSuch("--wire-type", options.wire_type,
                    "float32, bfloat16 or float16");
    }
    change.set_wire_type(type);
  }
  if (!options.compression.empty()) {
    CompressionSpec::Kind kind;
    if (!CompressionSpec::Kind_Parse(Name(options.compression), &kind) ||
        kind == CompressionSpec::KIND_UNSPECIFIED) {
      return NoSuch("--compression", options.compression,
                    "none, int8, top-k or terngrad");
    }
    change.set_compression(kind);
  }
  if (change.ByteSizeLong() == 0) {
    return absl::InvalidArgumentError(
        "nothing is to change; give --mode, --bound, --strategy, --wire-type, "
        "--compression or --learning-rate-factor");
  }
  return change;
}

int RunRegime(const RegimeOptions& options, const Console& console) {
  const auto change = ParseRegimeChange(options);
  if (!change.ok()) {
    console.PrintError(change.status());
    return kExitUsage;
  }
  ChangeRegimeRequest request;
  request.set_job_id(options.job_id);
  *request.mutable_change() = *change;
  request.set_reason(options.reason.empty()
                         ? "synctl regime"
                         : absl::StrCat("synctl regime: ", options.reason));
  const auto changed =
      JobsClient(options.scheduler)
          .ChangeRegime(request, absl::Seconds(options.timeout_seconds));
  if (absl::IsDeadlineExceeded(changed.status())) {
    return console.PrintError(absl::DeadlineExceededError(absl::StrCat(
        "job ", options.job_id, ": the change is still under way after ",
        absl::FormatDuration(absl::Seconds(options.timeout_seconds)),
        "; `synctl get ", options.job_id, "` will say what became of it")));
  }
  if (!changed.ok()) return console.PrintError(changed.status());
  if (console.json) {
    console.PrintJson(*changed);
    return kExitOk;
  }
  const Regime& regime = changed->regime();
  const bool names_ps = StrategyOf(regime) == PARAMETER_SERVER &&
                        change->strategy() != STRATEGY_UNSPECIFIED;
  console.out << "job " << options.job_id << " trains by "
              << (names_ps ? "PARAMETER_SERVER " : "") << RegimeText(regime)
              << " from clock " << regime.first_clock() << " on (pause "
              << absl::StrCat(std::round(changed->pause_seconds() * 1000) /
                              1000)
              << " s)" << std::endl;
  return kExitOk;
}

}  // namespace syncline::ctl
