// Goal: no state of a shard, whoever wrote it, breaks the shard that begins
// with it; what is refused is not used, and what is accepted is whole.
// Method: the first byte chooses. Even: the rest is a state. Odd: it is the
// records of one (kind, two sizes of two bytes, meta, bulk), which get their
// frames and checksums here, so that what they say is looked at. A state that
// is accepted is exported again, and accepted again.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/state/shard_state_writer.h"
#include "google/protobuf/empty.pb.h"
#include "proto/shard_state.pb.h"
#include "server/shard/job_shard.h"
#include "server/shard/shard_exporter.h"
#include "server/shard/shard_importer.h"
#include "tests/testing/assignment_builder.h"

namespace syncline {
namespace {

using ps::JobShard;

class StringSink : public ShardStateSink {
 public:
  absl::Status Append(absl::string_view head, absl::string_view bulk) override {
    bytes.append(head.data(), head.size());
    bytes.append(bulk.data(), bulk.size());
    return absl::OkStatus();
  }
  std::string bytes;
};

class StringSource : public ShardStateSource {
 public:
  explicit StringSource(std::string bytes) : bytes_(std::move(bytes)) {}
  absl::StatusOr<size_t> Read(size_t bytes, char* out) override {
    const size_t count = bytes_.copy(out, bytes, at_);
    at_ += count;
    return count;
  }
  std::string name() const override { return "input"; }

 private:
  const std::string bytes_;
  size_t at_ = 0;
};

// Two blocks, and a table with a filter.
const JobAssignment& Job() {
  static const JobAssignment* const job = [] {
    JobSpec spec = PlainSgdJob();
    spec.mutable_consistency()->set_mode(ConsistencySpec::ASYNC);
    spec.mutable_optimizer()->set_kind(OptimizerSpec::MOMENTUM);
    TableSpec* const table = spec.add_tables();
    table->set_name("emb");
    table->set_memory_bytes(64 << 10);
    table->mutable_optimizer()->set_kind(OptimizerSpec::ADAM);
    table->mutable_admission()->set_min_sightings(2);
    table->mutable_admission()->set_filter_bytes(256);
    return new JobAssignment(AssignmentBuilder(spec, "j")
                                 .Parameter("w", {4})
                                 .Parameter("v", {3})
                                 .Table("emb", 2, 1)
                                 .Workers(1)
                                 .Ps(1)
                                 .Build());
  }();
  return *job;
}

class Shard {
 public:
  Shard() {
    const auto config = ps::ReadJobConfig(Job(), 0);
    SYNCLINE_CHECK(config.ok());
    ps::EmbeddingTables::ColdStores cold(1);
    auto tables = ps::EmbeddingTables::Create(*config, lanes_.count(),
                                              std::move(cold), {});
    SYNCLINE_CHECK(tables.ok());
    shard_ = std::make_shared<JobShard>(
        *config, JobShard::Resources{&lanes_, budget_.get(), buffers_.get()},
        nullptr, *std::move(tables));
  }
  ~Shard() {
    shard_->Close(absl::CancelledError("over"));
    lanes_.Drain();
  }

  absl::Status Import(std::string state) {
    ps::ShardStart start{.states = {}, .options = {.passes_over_others = true}};
    start.states.push_back(std::make_unique<StringSource>(std::move(state)));
    return shard_->Import(start);
  }
  // Of a shard that has accepted a state. Nothing if the state's cuts are in
  // the way of one here.
  std::optional<std::string> Export() {
    constexpr uint64_t kCut = uint64_t{1} << 50;
    Caller chief;
    chief.set_incarnation(kTestWorkerIncarnation);
    const int64_t clock = shard_->Status().workers(0).closed_clocks();
    const absl::Status begun = shard_->BeginCut(
        chief, kCut, {clock}, absl::Minutes(1), CutUse::kEvaluation);
    StringSink sink;
    if (!begun.ok() || !shard_->Export(kCut, {}, &sink).ok()) return {};
    return std::move(sink.bytes);
  }

 private:
  const std::shared_ptr<ps::InFlightBudget> budget_ =
      std::make_shared<ps::InFlightBudget>(1 << 20);
  const std::shared_ptr<ps::BufferPool> buffers_ =
      std::make_shared<ps::BufferPool>(1 << 20);
  ps::Lanes lanes_{1};
  std::shared_ptr<JobShard> shard_;
};

// The state whose records `bytes` lists.
std::string Framed(const std::string& bytes) {
  StringSink sink;
  ShardStateWriter writer(&sink);
  size_t at = 0;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  while (at + 5 <= bytes.size()) {
    const auto kind = static_cast<ShardStateKind>(byte(at));
    const size_t meta_bytes = byte(at + 1) + 256u * byte(at + 2);
    const size_t bulk_bytes = byte(at + 3) + 256u * byte(at + 4);
    at += 5;
    if (meta_bytes + bulk_bytes > bytes.size() - at) break;
    google::protobuf::Empty meta;  // keeps fields that it does not know
    if (!meta.ParseFromString(bytes.substr(at, meta_bytes))) break;
    SYNCLINE_CHECK(
        writer.Write(kind, meta, bytes.substr(at + meta_bytes, bulk_bytes))
            .ok());
    at += meta_bytes + bulk_bytes;
  }
  return std::move(sink.bytes);
}

}  // namespace
}  // namespace syncline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace syncline;  // NOLINT(google-build-using-namespace): C linkage
  if (size == 0) return 0;
  std::string rest(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::string state = data[0] % 2 == 0 ? std::move(rest) : Framed(rest);
  Shard shard;
  const absl::Status status = shard.Import(state);
  if (!status.ok()) {
    SYNCLINE_CHECK(!status.message().empty());
    return 0;
  }
  const std::optional<std::string> exported = shard.Export();
  if (!exported.has_value()) return 0;
  Shard other;
  SYNCLINE_CHECK(other.Import(*exported).ok());
  return 0;
}
