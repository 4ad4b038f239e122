#include "scheduler/core/cluster/tenant_quotas.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/job/evaluate_validator.h"
#include "common/job/local_rules.h"
#include "common/job/lost_workers.h"
#include "scheduler/core/describe.h"

namespace syncline::scheduler {
namespace {

constexpr char kEveryOther[] = "*";

struct QuotaText {
  Quota quota;
  absl::string_view name;   // in the file
  absl::string_view noun;   // of one, for CountText
  absl::string_view field;  // of a job: what a user can ask less of
  bool is_bytes;
};
constexpr QuotaText kTexts[kQuotaCount] = {
    {Quota::kWorkers, "workers", "worker", "resources.workers", false},
    {Quota::kPs, "ps", "ps", "resources.ps", false},
    {Quota::kPsMemory, "ps-memory", "", "model", true},
    {Quota::kDisk, "disk", "", "model", true},
    {Quota::kQueued, "queued", "", "", false},
};

constexpr std::pair<absl::string_view, int> kUnits[] = {
    {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};

// "3" or "1.5 GiB", rounded.
std::string AmountText(const QuotaText& text, uint64_t amount) {
  if (!text.is_bytes) return CountText(amount, text.noun);
  for (auto unit = std::rbegin(kUnits); unit != std::rend(kUnits); ++unit) {
    const uint64_t size = uint64_t{1} << unit->second;
    if (amount < size) continue;
    const uint64_t tenths = amount / (size / 10);
    const double rounded = static_cast<double>(tenths) / 10;
    return absl::StrCat(rounded, " ", unit->first, " of ", text.name);
  }
  return absl::StrCat(amount, " bytes of ", text.name);
}

uint64_t Saturated(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum < a ? std::numeric_limits<uint64_t>::max() : sum;
}

absl::StatusOr<uint64_t> ParseAmount(absl::string_view said, bool is_bytes) {
  absl::string_view digits = said;
  int shift = 0;
  for (const auto& [unit, bits] : kUnits) {
    if (is_bytes && absl::ConsumeSuffix(&digits, unit)) shift = bits;
  }
  uint64_t amount = 0;
  const bool is_number = !digits.empty() &&
                         absl::c_all_of(digits, absl::ascii_isdigit) &&
                         absl::SimpleAtoi(digits, &amount);
  if (is_number && amount <= (std::numeric_limits<uint64_t>::max() >> shift)) {
    return amount << shift;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", Printable(said), "\" is no amount: a number",
      is_bytes ? " of bytes, such as 4096 or 8GiB (KiB, MiB, GiB, TiB)" : ""));
}

// Optimizer slots of a value: what kernels/optimizer has, which the scheduler
// does not link (tenant_quotas_test compares).
uint64_t SlotsOf(const OptimizerSpec& optimizer) {
  switch (optimizer.kind()) {
    case OptimizerSpec::MOMENTUM:
    case OptimizerSpec::NESTEROV:
    case OptimizerSpec::ADAGRAD:
    case OptimizerSpec::ROW_WISE_ADAGRAD:
      return 1;
    case OptimizerSpec::ADAM:
    case OptimizerSpec::ADAMW:
    case OptimizerSpec::LAMB:
    case OptimizerSpec::FTRL:
      return 2;
    case OptimizerSpec::RMSPROP:
      return 1 + (optimizer.centered() ? 1 : 0) +
             (optimizer.momentum() != 0 ? 1 : 0);
    default:
      return 0;
  }
}

}  // namespace

JobDemand DemandOf(const JobSpec& spec,
                   absl::Span<const ParameterInfo> parameters) {
  JobDemand demand;
  demand.amounts[Quota::kWorkers] = spec.resources().workers();
  demand.amounts[Quota::kPs] = spec.resources().ps();
  uint64_t values = 0;
  for (const ParameterInfo& parameter : parameters) {
    uint64_t count = 1;
    for (const int64_t dim : parameter.dims()) {
      count *= static_cast<uint64_t>(dim);
    }
    values = Saturated(values, count);
  }
  const uint64_t bytes = values * sizeof(float);
  uint64_t memory = spec.resources().ps() == 0
                        ? 0
                        : bytes * (1 + SlotsOf(OwnersOptimizer(spec)));
  for (const TableSpec& table : spec.tables()) {
    if (table.memory_bytes() == 0 && demand.table_without_limit.empty()) {
      demand.table_without_limit = table.name();
    }
    memory = Saturated(memory, table.memory_bytes() * spec.resources().ps());
  }
  demand.amounts[Quota::kPsMemory] = memory;
  demand.amounts[Quota::kDisk] = bytes;
  if (OnlyEvaluates(spec)) {  // by one member, from files
    demand.amounts[Quota::kWorkers] = 1;
    demand.amounts[Quota::kPs] = 0;
    demand.amounts[Quota::kPsMemory] = 0;
  }
  return demand;
}

std::map<std::string, TenantAmounts> UseOfTenants(
    absl::Span<const Job* const> jobs) {
  std::map<std::string, TenantAmounts> uses;
  for (const Job* job : jobs) {
    const JobStatus& status = job->status();
    TenantAmounts& use = uses[status.tenant()];
    if (status.state() == QUEUED) ++use[Quota::kQueued];
    for (const Artifact& artifact : status.artifacts()) {
      use[Quota::kDisk] = Saturated(use[Quota::kDisk], artifact.size_bytes());
    }
    for (const CheckpointInfo& checkpoint : status.checkpoints()) {
      use[Quota::kDisk] = Saturated(use[Quota::kDisk], checkpoint.bytes());
    }
    if (job->Participants().empty()) continue;
    JobDemand demand = DemandOf(status.spec(), job->parameters());
    demand.amounts[Quota::kWorkers] = WorkersLeft(status);
    for (const Quota quota : {Quota::kWorkers, Quota::kPs, Quota::kPsMemory}) {
      use[quota] = Saturated(use[quota], demand.amounts[quota]);
    }
  }
  return uses;
}

absl::StatusOr<TenantQuotas> TenantQuotas::Parse(absl::string_view text) {
  TenantQuotas quotas;
  int number = 0;
  const auto problem = [&](const auto&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", number, ": ", parts...));
  };
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const auto [entry, is_new] =
        quotas.by_tenant_.try_emplace(std::string(words[0]));
    if (!is_new) {
      return problem(Printable(words[0]), " has a line already");
    }
    for (size_t i = 1; i < words.size(); ++i) {
      const std::pair<absl::string_view, absl::string_view> said =
          absl::StrSplit(words[i], absl::MaxSplits('=', 1));
      const auto known = absl::c_find_if(
          kTexts, [&](const QuotaText& one) { return one.name == said.first; });
      if (known == std::end(kTexts)) {
        return problem("\"", Printable(words[i]),
                       "\" is no quota: workers=, ps=, ps-memory=, disk=, "
                       "queued=");
      }
      const auto amount = ParseAmount(said.second, known->is_bytes);
      if (!amount.ok()) {
        return problem(known->name, ": ", amount.status().message());
      }
      auto& limit = entry->second[static_cast<size_t>(known->quota)];
      if (limit.has_value()) return problem(known->name, " is there twice");
      limit = *amount;
    }
  }
  return quotas;
}

const TenantQuotas::Limits* TenantQuotas::Find(
    const std::string& tenant) const {
  if (tenant.empty()) return nullptr;
  auto found = by_tenant_.find(tenant);
  if (found == by_tenant_.end()) found = by_tenant_.find(kEveryOther);
  return found == by_tenant_.end() ? nullptr : &found->second;
}

absl::Status TenantQuotas::CheckFits(const std::string& tenant,
                                     const JobDemand& demand) const {
  const Limits* const limits = Find(tenant);
  if (limits == nullptr) return absl::OkStatus();
  for (const QuotaText& text : kTexts) {
    const auto& limit = (*limits)[static_cast<size_t>(text.quota)];
    if (text.quota == Quota::kQueued || !limit.has_value()) continue;
    if (text.quota == Quota::kPsMemory && !demand.table_without_limit.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tables: ", Printable(demand.table_without_limit),
          " does not say memory_bytes, which it has to because tenant ", tenant,
          " has a quota of ps-memory"));
    }
    if (demand.amounts[text.quota] <= *limit) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        text.field, ": the job needs ",
        AmountText(text, demand.amounts[text.quota]), "; the quota of tenant ",
        tenant, " is ", AmountText(text, *limit), ", so it could never run"));
  }
  return absl::OkStatus();
}

absl::Status TenantQuotas::CheckQueue(const std::string& tenant,
                                      const TenantAmounts& use) const {
  const Limits* const limits = Find(tenant);
  if (limits == nullptr) return absl::OkStatus();
  const auto& limit = (*limits)[static_cast<size_t>(Quota::kQueued)];
  if (!limit.has_value() || use[Quota::kQueued] < *limit) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the quota of tenant ", tenant, " is ", CountText(*limit, "queued job"),
      ", and ", use[Quota::kQueued], " wait already"));
}

std::string TenantQuotas::WhyWaits(const std::string& tenant,
                                   const JobDemand& demand,
                                   const TenantAmounts& use) const {
  const Limits* const limits = Find(tenant);
  if (limits == nullptr) return "";
  for (const QuotaText& text : kTexts) {
    const auto& limit = (*limits)[static_cast<size_t>(text.quota)];
    if (text.quota == Quota::kQueued || !limit.has_value()) continue;
    const uint64_t needed = demand.amounts[text.quota];
    if (needed == 0 || Saturated(use[text.quota], needed) <= *limit) continue;
    const std::string quota = absl::StrCat(
        "the quota of tenant ", tenant, ", ", AmountText(text, *limit),
        ": it has ", AmountText(text, use[text.quota]));
    if (text.quota == Quota::kDisk) {
      return absl::StrCat(
          quota,
          " in results and checkpoints; they go --keep-days after the "
          "end of their job");
    }
    return absl::StrCat(quota, " in use, and this job needs ",
                        AmountText(text, needed));
  }
  return "";
}

}  // namespace syncline::scheduler
