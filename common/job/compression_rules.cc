#include "common/job/compression_rules.h"

#include "common/job/job_spec_fields.h"
#include "common/job/local_rules.h"
#include "common/job/strategy_change.h"
#include "common/job/strategy_rules.h"

namespace syncline {
namespace {

using C = CompressionSpec;
using O = OptimizerSpec;

constexpr double kDefaultFraction = 0.01;
constexpr uint32_t kDefaultBlockElements = 256;
constexpr uint64_t kWarmupClocksMax = 1'000'000'000;

// The fields that only some kinds read.
void CheckFields(const C& compression, Problems* problems) {
  const C::Kind kind = compression.kind();
  const bool sparse = IsOneOf(kind, {C::TOP_K, C::DGC});
  const bool grouped = IsOneOf(kind, {C::INT8, C::TERNGRAD, C::ONE_BIT_ADAM});
  const double fraction = compression.fraction();
  if (fraction != 0 && !sparse) {
    problems->Add("compression.fraction", "has no meaning for ",
                  C::Kind_Name(kind), ", only for TOP_K, DGC");
  } else if (fraction != 0 && !(fraction > 0 && fraction < 1)) {
    problems->Add("compression.fraction", fraction, " is outside (0, 1)");
  }
  const uint32_t block = compression.block_elements();
  if (block != 0 && !grouped) {
    problems->Add("compression.block_elements", "has no meaning for ",
                  C::Kind_Name(kind),
                  ", only for INT8, TERNGRAD, ONE_BIT_ADAM");
  } else if (block != 0 &&
             (block < kCompressionBlockMin || block > kCompressionBlockMax)) {
    problems->Add("compression.block_elements", block, " is outside ",
                  kCompressionBlockMin, "..", kCompressionBlockMax);
  }
  if (compression.warmup_clocks() != 0 &&
      !IsOneOf(kind, {C::DGC, C::ONE_BIT_ADAM})) {
    problems->Add("compression.warmup_clocks", "has no meaning for ",
                  C::Kind_Name(kind), ", only for DGC, ONE_BIT_ADAM");
  }
  problems->AtMost("compression.warmup_clocks", compression.warmup_clocks(),
                   kWarmupClocksMax);
}

std::string NameOfStrategy(const JobSpec& spec) {
  return Strategy_Name(spec.strategy() == STRATEGY_UNSPECIFIED
                           ? PARAMETER_SERVER
                           : spec.strategy());
}

// Sums, or what changes in the values of ps, come back compressed.
void CheckValues(const JobSpec& spec, Problems* problems) {
  if (!spec.compression().values()) return;
  if (IsOneOf(spec.strategy(), {ALL_REDUCE, HYBRID})) return;
  if (!IsOneOf(spec.strategy(), {STRATEGY_UNSPECIFIED, PARAMETER_SERVER})) {
    problems->Add("compression.values",
                  "is for PARAMETER_SERVER, ALL_REDUCE and HYBRID; not built "
                  "yet for ",
                  NameOfStrategy(spec),
                  ": leave it out; wire_type WIRE_BFLOAT16 halves the bytes of "
                  "values");
    return;
  }
  if (!IsOneOf(spec.consistency().mode(),
               {ConsistencySpec::MODE_UNSPECIFIED, ConsistencySpec::SYNC})) {
    problems->Add("compression.values",
                  "goes with SYNC by PARAMETER_SERVER, not with ",
                  ConsistencySpec::Mode_Name(spec.consistency().mode()),
                  ": workers follow what changes from clock to clock, which "
                  "must be the same for all");
  }
  if (!IsOneOf(spec.wire_type(), {WIRE_TYPE_UNSPECIFIED, WIRE_FLOAT32})) {
    problems->Add("compression.values", "does not go with wire_type ",
                  WireType_Name(spec.wire_type()),
                  ": values come back in 8 bits an element; leave one of them "
                  "out");
  }
}

void CheckDgc(const O& optimizer, Problems* problems) {
  if (!IsOneOf(optimizer.kind(), {O::SGD, O::MOMENTUM})) {
    if (!O::Kind_IsValid(optimizer.kind())) return;
    problems->Add("compression.kind", "DGC is for SGD and MOMENTUM only, not ",
                  O::Kind_Name(optimizer.kind()),
                  ": its momentum is at the workers; use TOP_K");
    return;
  }
  if (optimizer.kind() == O::MOMENTUM && optimizer.weight_decay() != 0) {
    problems->Add("optimizer.weight_decay",
                  "does not go with compression DGC and MOMENTUM: the decay is "
                  "where gradients are added up, behind the momentum of the "
                  "workers; use TOP_K");
  }
}

void CheckOneBitAdam(const JobSpec& spec, Problems* problems) {
  const O& optimizer = spec.optimizer();
  if (O::Kind_IsValid(optimizer.kind()) &&
      !IsOneOf(optimizer.kind(), {O::ADAM, O::ADAMW})) {
    problems->Add("compression.kind", "ONE_BIT_ADAM is for ADAM and ADAMW only",
                  ", not ", O::Kind_Name(optimizer.kind()),
                  ": what it sends is Adam's first moment; use INT8");
  }
  if (spec.strategy() != ALL_REDUCE) {
    problems->Add("compression.kind",
                  "ONE_BIT_ADAM is for ALL_REDUCE, where every worker has the "
                  "moments, not ",
                  NameOfStrategy(spec), ": use INT8");
  }
  if (!IsOneOf(spec.wire_type(), {WIRE_TYPE_UNSPECIFIED, WIRE_FLOAT32})) {
    problems->Add(
        "compression.kind",
        "ONE_BIT_ADAM goes with wire_type WIRE_FLOAT32 only: its warm-up "
        "sends gradients as they are");
  }
  const int64_t clocks = static_cast<int64_t>(spec.training().max_clocks());
  const auto warmup = static_cast<int64_t>(spec.compression().warmup_clocks());
  if (clocks > 0 && warmup >= clocks) {
    problems->Add("compression.warmup_clocks", warmup,
                  " is not below training.max_clocks, ", clocks,
                  ": nothing would be compressed");
  }
  if (warmup == 0) {
    problems->Add("compression.warmup_clocks",
                  "is required for ONE_BIT_ADAM: the clocks of Adam before the "
                  "second moment stays as it is, 15 to 25% of the job's");
  }
  if (optimizer.kind() == O::ADAM && optimizer.weight_decay() != 0) {
    problems->Add("optimizer.weight_decay",
                  "does not go with compression ONE_BIT_ADAM and ADAM: the "
                  "decay would be of the moment; use ADAMW");
  }
  if (!IsOneOf(spec.non_finite(), {NON_FINITE_POLICY_UNSPECIFIED, FAIL_JOB}) ||
      (spec.precision() == FLOAT16 && !spec.loss_scale().has_fixed())) {
    problems->Add("compression.kind",
                  "ONE_BIT_ADAM goes with non_finite FAIL_JOB only, and with "
                  "FLOAT16 by loss_scale.fixed: a moment that was sent counts");
  }
}

bool SendsBackSums(const JobSpec& spec) {
  return IsOneOf(spec.strategy(), {ALL_REDUCE, HYBRID}) ||
         spec.compression().kind() == C::ONE_BIT_ADAM;
}

bool CompressesBack(const JobSpec& spec) {
  return spec.compression().values() ||
         spec.compression().kind() == C::ONE_BIT_ADAM;
}

// Of what is sent back, for a note.
std::string NotCompressed(const JobSpec& spec) {
  if (CompressesBack(spec)) return "";
  return SendsBackSums(spec) ? "their sums, " : "values, ";
}

}  // namespace

void CheckCompression(const JobSpec& spec, Problems* problems) {
  if (!spec.has_compression()) return;
  const C& compression = spec.compression();
  const C::Kind kind = compression.kind();
  if (!C::Kind_IsValid(kind)) return;  // that is said elsewhere
  if (kind == C::KIND_UNSPECIFIED) {
    problems->Add("compression.kind",
                  "is required: NONE, INT8, TOP_K, DGC, TERNGRAD or "
                  "ONE_BIT_ADAM");
    return;
  }
  CheckFields(compression, problems);
  if (kind == C::NONE) {
    if (compression.values()) {
      problems->Add("compression.values",
                    "does not go with NONE: gradients would be whole one way "
                    "alone");
    }
    return;
  }
  if (kind == C::ONE_BIT_ADAM) {
    CheckOneBitAdam(spec, problems);
  } else {
    CheckValues(spec, problems);
  }
  if (!IsOneOf(spec.consistency().mode(),
               {ConsistencySpec::MODE_UNSPECIFIED, ConsistencySpec::SYNC,
                ConsistencySpec::BOUNDED_STALENESS, ConsistencySpec::ASYNC,
                ConsistencySpec::LOCAL})) {
    problems->Add("compression", C::Kind_Name(kind), " is not built for ",
                  ConsistencySpec::Mode_Name(spec.consistency().mode()),
                  " yet: it may drop what the residuals count as sent");
  }
  // In LOCAL workers clip gradients, and the change of a round is compressed.
  if (IsLocal(spec)) return;
  if (spec.optimizer().clip_value() != 0) {
    problems->Add("optimizer.clip_value",
                  "does not go with compression: it would be of what is left "
                  "of the gradient");
  }
  if (spec.optimizer().clip_norm() != 0 && kind != C::DGC) {
    problems->Add("optimizer.clip_norm", "does not go with compression ",
                  C::Kind_Name(kind),
                  ": the norm would be of what is left of the gradient; DGC "
                  "clips before it compresses");
  }
  if (kind != C::DGC) return;
  CheckDgc(spec.optimizer(), problems);
  if (spec.optimizer().clip_norm() != 0 && FreesGradients(spec)) {
    problems->Add("optimizer.clip_norm",
                  "does not go with compression DGC and sharding.stage ",
                  spec.sharding().stage(),
                  ": its norm is known once all gradients are there, and that "
                  "stage frees each as it is computed; use stage 1");
  }
}

void FillCompression(JobSpec* spec) {
  if (!spec->has_compression()) return;
  C* const compression = spec->mutable_compression();
  if (IsOneOf(compression->kind(), {C::TOP_K, C::DGC}) &&
      compression->fraction() == 0) {
    compression->set_fraction(kDefaultFraction);
  }
  if (compression->kind() == C::ONE_BIT_ADAM) compression->set_values(true);
  if (IsOneOf(compression->kind(), {C::INT8, C::TERNGRAD, C::ONE_BIT_ADAM}) &&
      compression->block_elements() == 0) {
    compression->set_block_elements(kDefaultBlockElements);
  }
}

bool SavesResiduals(const JobSpec& spec) {
  return spec.has_checkpoint() && !spec.checkpoint().directory().empty() &&
         (spec.strategy() == HYBRID ||
          IsOneOf(spec.consistency().mode(),
                  {ConsistencySpec::MODE_UNSPECIFIED, ConsistencySpec::SYNC}));
}

std::string CompressionNote(const JobSpec& spec) {
  if (!Compresses(spec)) return "";
  const C::Kind kind = spec.compression().kind();
  std::string note = absl::StrCat(
      "compression ", C::Kind_Name(kind),
      !CompressesBack(spec) ? ": of dense gradients, not of "
      : SendsBackSums(spec) ? ": of dense gradients and their sums, not of "
                            : ": of dense gradients and values, not of ",
      NotCompressed(spec), "rows of tables and running means");
  const bool kept = kind != C::TERNGRAD && !SavesResiduals(spec);
  if (!kept && !CompressesBack(spec)) return note;
  absl::StrAppend(
      &note, "; checkpoints have no residuals",
      kept                  ? ""
      : SendsBackSums(spec) ? " of sums"
                            : " of values",
      ": a resumed job ",
      kept && kind == C::DGC && spec.optimizer().kind() == O::MOMENTUM
          ? "begins with new ones and without momentum"
          : "begins with new ones",
      ", so its bits are not those of one that was not interrupted");
  return note;
}

}  // namespace syncline
