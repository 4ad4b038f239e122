// Goal: a worker's late step counts once, at the open clock, on dense values
// and on rows of tables alike, changed as the job says by the values that it
// was computed with and those of the open clock; so do clipping, decay,
// optimizers of tables, admission and expiry. Method: real ps; a trainer whose
// steps wait while the test makes clocks in the other worker's place, of which
// one is needed, so that it is known who makes which clock; all of it again in
// double precision, sample by sample.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/job_spec_validator.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/routing_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/assigned_job.h"
#include "tests/testing/assignment_builder.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/ps_node.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "worker/client/ps_client.h"
#include "worker/training/trainer.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint32_t kPs = 3;
constexpr int64_t kBatch = 4;  // of each worker
constexpr uint64_t kChiefSamples = 3;
constexpr int kTables = 2;   // emb and who
constexpr int kTensors = 2;  // w and v
constexpr double kInitial[kTables] = {0.25, -0.5};
constexpr double kRate = 0.05;

constexpr char kLateModel[] = R"(
< ir_version: 8, opset_import: ["" : 13] >
late (
  int64[N, 3] bag, int64[N] user, float[ROWS, 2] emb, float[ROWS, 3] who,
  float[2, 1] w, float[3, 1] v
) => (float[N, 1] y)
<int64[1] one = {1}>
{
  items = Gather (emb, bag)
  sum = ReduceSum <keepdims = 0> (items, one)
  a = MatMul (sum, w)
  u = Gather (who, user)
  b = MatMul (u, v)
  y = Add (a, b)
})";
constexpr size_t kDims[kTables] = {2, 3};  // of w and v, too

using Vector = std::vector<double>;

struct Sample {
  double target = 0;
  int64_t bag[3] = {};
  int64_t user = 0;
};

// Of a summed loss.
struct Gradient {
  Vector dense[kTensors];
  std::map<int64_t, Vector> rows[kTables];
  uint64_t samples = 0;
};

// The job's values in double precision, after clocks that are made one by one.
class Reference {
 public:
  struct Options {
    double clip_norm = 0;        // 0: none
    double weight_decay = 0;     // of all but `who`, which has Adagrad
    uint32_t min_sightings = 0;  // of `who`
    uint64_t unseen_clocks = 0;  // of `emb`; 0: no row expires
  };
  explicit Reference(const Options& options) : options_(options) {
    for (int i = 0; i < kTensors; ++i) dense_[i].assign(kDims[i], 0.5);
  }

  const Vector& dense(int tensor) const { return dense_[tensor]; }
  // As a worker reads it before clock `clock`.
  Vector RowOf(int table, int64_t key, int64_t clock) const {
    const auto row = rows_[table].find(key);
    if (row == rows_[table].end() || HasExpired(table, row->second, clock)) {
      return Vector(kDims[table], kInitial[table]);
    }
    return row->second.value;
  }
  Gradient GradientOf(int64_t clock, const std::vector<Sample>& batch) const {
    Gradient sum;
    sum.samples = batch.size();
    for (int i = 0; i < kTensors; ++i) sum.dense[i].assign(kDims[i], 0);
    for (const Sample& sample : batch) {
      Vector items(kDims[0], 0);
      for (const int64_t id : sample.bag) {
        const Vector row = RowOf(0, id, clock);
        for (size_t i = 0; i < kDims[0]; ++i) items[i] += row[i];
      }
      const Vector user = RowOf(1, sample.user, clock);
      double y = 0;
      for (size_t i = 0; i < kDims[0]; ++i) y += items[i] * dense_[0][i];
      for (size_t i = 0; i < kDims[1]; ++i) y += user[i] * dense_[1][i];
      const double slope = 2 * (y - sample.target);
      for (const int64_t id : sample.bag) {
        Add(slope, dense_[0], &sum.rows[0][id]);
      }
      Add(slope, dense_[1], &sum.rows[1][sample.user]);
      Add(slope, items, &sum.dense[0]);
      Add(slope, user, &sum.dense[1]);
    }
    return sum;
  }
  // `late`, computed with the values of `old` at `old_clock`, as COMPENSATE
  // changes it.
  Gradient Compensated(Gradient late, const Reference& old, int64_t old_clock,
                       int64_t clock, double lambda) const {
    const double weight = lambda / static_cast<double>(late.samples);
    const auto change = [&](const Vector& value, const Vector& before,
                            Vector* g) {
      for (size_t i = 0; i < g->size(); ++i) {
        (*g)[i] += weight * (*g)[i] * (*g)[i] * (value[i] - before[i]);
      }
    };
    for (int i = 0; i < kTensors; ++i) {
      change(dense_[i], old.dense_[i], &late.dense[i]);
    }
    for (int t = 0; t < kTables; ++t) {
      for (auto& [key, g] : late.rows[t]) {
        change(RowOf(t, key, clock), old.RowOf(t, key, old_clock), &g);
      }
    }
    return late;
  }
  // Makes clock `clock` with the gradient of one worker.
  void Apply(int64_t clock, Gradient g) {
    double squares = 0;
    ForEach(&g, [&](double* v) {
      *v /= static_cast<double>(g.samples);
      squares += *v * *v;
    });
    if (options_.clip_norm > 0 && std::sqrt(squares) > options_.clip_norm) {
      ForEach(&g, [&](double* v) {
        *v *= options_.clip_norm / std::sqrt(squares);
      });
    }
    for (int i = 0; i < kTensors; ++i) Descend(g.dense[i], &dense_[i]);
    for (const auto& [key, row_gradient] : g.rows[0]) {
      const Vector before = RowOf(0, key, clock);
      Row& row = rows_[0][key];
      row.value = before;
      row.clock = clock;
      Descend(row_gradient, &row.value);
    }
    for (const auto& [key, row_gradient] : g.rows[1]) {
      if (++sightings_[key] < options_.min_sightings) continue;
      Row& row = rows_[1][key];
      if (row.value.empty()) {
        row.value.assign(kDims[1], kInitial[1]);
        row.squares.assign(kDims[1], 0);
      }
      for (size_t i = 0; i < kDims[1]; ++i) {
        row.squares[i] += row_gradient[i] * row_gradient[i];
        row.value[i] -=
            kRate * row_gradient[i] / (std::sqrt(row.squares[i]) + 1e-10);
      }
    }
  }

 private:
  struct Row {
    Vector value;
    Vector squares;
    int64_t clock = 0;  // of its last push
  };
  static void Add(double weight, const Vector& x, Vector* sum) {
    sum->resize(x.size(), 0);
    for (size_t i = 0; i < x.size(); ++i) (*sum)[i] += weight * x[i];
  }
  template <typename F>
  static void ForEach(Gradient* g, F f) {
    for (Vector& tensor : g->dense) {
      for (double& v : tensor) f(&v);
    }
    for (auto& table : g->rows) {
      for (auto& [key, row] : table) {
        for (double& v : row) f(&v);
      }
    }
  }
  void Descend(const Vector& g, Vector* value) const {
    for (size_t i = 0; i < g.size(); ++i) {
      (*value)[i] -= kRate * (g[i] + options_.weight_decay * (*value)[i]);
    }
  }
  bool HasExpired(int table, const Row& row, int64_t clock) const {
    return table == 0 && options_.unseen_clocks > 0 &&
           clock - row.clock > static_cast<int64_t>(options_.unseen_clocks);
  }

  Options options_;
  Vector dense_[kTensors];
  std::map<int64_t, Row> rows_[kTables];
  std::map<int64_t, uint32_t> sightings_;  // of `who`
};

// Waits before it hands over a step.
class HeldClient final : public worker::PsClient {
 public:
  HeldClient(const Options& options, BlockMap map, worker::DenseTensors tensors,
             std::function<void(const Step&)> before_step)
      : PsClient(options, std::move(map), std::move(tensors)),
        before_step_(std::move(before_step)) {}

  void BeginStep(const Step& step) override {
    before_step_(step);
    PsClient::BeginStep(step);
  }

 private:
  const std::function<void(const Step&)> before_step_;
};

struct LateCase {
  std::string name;
  std::string consistency;
  double lambda = 0;  // COMPENSATE's; 0: SCALE
  std::string edit = "";
  Reference::Options reference = {};

  friend void PrintTo(const LateCase& of, std::ostream* out) {
    *out << of.name;
  }
};

class LateRowsTest : public ::testing::Test {
 protected:
  // By the clock of a step that waits: the clocks that the other worker makes
  // meanwhile.
  using Held = std::map<int64_t, std::vector<int64_t>>;

  // Keys of a pool, of which some repeat within a sample.
  std::vector<Sample> DrawSamples(int count) {
    std::vector<Sample> samples(count);
    for (Sample& sample : samples) {
      sample.target = random_.Uniform();
      for (int64_t& id : sample.bag) id = DrawKey();
      sample.user = DrawKey();
    }
    return samples;
  }
  int64_t DrawKey() {
    return static_cast<int64_t>(random_.Below(12)) * 1'000'003;
  }

  // Trains `samples`, in their order, to the end: a clock has eight, of which
  // rank 1 has the last four. The clocks of Held are made by the chief with
  // gradients that are drawn, all others by rank 1.
  void Train(const LateCase& of, std::vector<Sample> samples,
             const Held& held) {
    samples_ = std::move(samples);
    held_ = held;
    reference_.assign(1, Reference(of.reference));
    Open(of);
    if (HasFatalFailure()) return;
    worker::JobExchange exchange;
    exchange.parameters = MakeHeldClient();
    worker::Trainer::Options options;
    options.metrics = &metrics_;
    options.on_progress = [](const WorkerProgress&) {};
    worker::Trainer trainer(*job_, std::move(exchange), options);
    ASSERT_OK(trainer.Run());
    trained_samples_ = trainer.Totals().samples();
    // The last clock has ended then.
    ASSERT_OK(chief_exchange_->Pull(clocks()));
  }
  int64_t clocks() const {
    return static_cast<int64_t>(samples_.size()) / (2 * kBatch);
  }
  std::vector<Sample> BatchOf(int64_t clock) const {
    const auto first = samples_.begin() + clock * 2 * kBatch + kBatch;
    return {first, first + kBatch};
  }
  // The reference makes the clocks that are left before `clock`: the test says
  // by whom, and with what.
  Reference& now() { return reference_.back(); }
  void MakeChiefs(std::vector<int64_t> clocks) {
    for (const int64_t clock : clocks) {
      Make(clock, chief_gradients_.at(clock));
    }
  }
  void MakeOwn(int64_t clock) {
    Make(clock, now().GradientOf(clock, BatchOf(clock)));
  }
  // At `clock`, that of `of`.
  void MakeLate(const LateCase& late, int64_t of, int64_t clock) {
    const Reference& old = reference_[of];
    Gradient g = old.GradientOf(of, BatchOf(of));
    if (late.lambda > 0) {
      g = now().Compensated(std::move(g), old, of, clock, late.lambda);
    } else {
      const double scale = 1.0 / static_cast<double>(1 + clock - of);
      for (Vector& tensor : g.dense) {
        for (double& v : tensor) v *= scale;
      }
      for (auto& table : g.rows) {
        for (auto& [key, row] : table) {
          for (double& v : row) v *= scale;
        }
      }
    }
    Make(clock, std::move(g));
  }

  // The values on the ps are those of the reference.
  void Compare() {
    ASSERT_EQ(static_cast<int64_t>(reference_.size()), clocks() + 1)
        << "the reference has made all clocks";
    for (int i = 0; i < kTensors; ++i) {
      const auto values = chief_->executor->parameter(TensorOf(i));
      for (size_t e = 0; e < kDims[i]; ++e) {
        EXPECT_NEAR(values[e], now().dense(i)[e], 2e-5) << i << " " << e;
      }
    }
    std::set<int64_t> keys;
    for (const Sample& sample : samples_) {
      keys.insert(sample.user);
      keys.insert(sample.bag, sample.bag + 3);
    }
    const auto rows = chief_->rows->lookup();
    worker::Batch batch;
    batch.size = static_cast<int64_t>(keys.size());
    batch.int_feeds.assign(kTables, {keys.begin(), keys.end()});
    worker::Collect(batch, rows);
    ASSERT_OK(chief_exchange_->PullRows(clocks(), /*cut_id=*/0, rows));
    for (int t = 0; t < kTables; ++t) {
      for (size_t i = 0; i < rows[t]->keys().size(); ++i) {
        const int64_t key = rows[t]->keys()[i];
        const Vector want = now().RowOf(t, key, clocks());
        for (size_t e = 0; e < kDims[t]; ++e) {
          EXPECT_NEAR(rows[t]->value(i)[e], want[e], 2e-5)
              << "table " << t << " key " << key << " element " << e;
        }
      }
    }
  }
  // Of rank 1, as shard 0 counts.
  ShardStatus::Worker StatusOfWorker() {
    ShardStatus status;
    const auto stub =
        ParameterServer::NewStub(MakeChannel(nodes_[0].address()));
    EXPECT_OK(FromGrpcStatus(stub->GetShardStatus(
        MakeContext(MonotonicNow() + absl::Seconds(20)).get(),
        ShardStatusRequest(), &status)));
    return status.jobs(0).workers(1);
  }

  std::vector<std::pair<int64_t, uint64_t>> steps_;  // clock, samples: rank 1's
  uint64_t trained_samples_ = 0;
  std::vector<Reference> reference_;  // by clock: before it

 private:
  void Make(int64_t clock, Gradient g) {
    ASSERT_EQ(static_cast<int64_t>(reference_.size()), clock + 1);
    Reference next = now();
    next.Apply(clock, std::move(g));
    reference_.push_back(std::move(next));
  }

  void Open(const LateCase& of) {
    std::string csv;
    for (const Sample& s : samples_) {
      absl::StrAppend(&csv, s.target, ",", s.bag[0], ",", s.bag[1], ",",
                      s.bag[2], ",", s.user, "\n");
    }
    dir_.Write("train.csv", csv);
    JobSpec spec = JobFromText(
        R"pb(
          name: "late"
          model {
            path: "model.onnxtxt"
            initialize { pattern: "*" scheme: CONSTANT value: 0.5 }
          }
          data {
            train { csv { path: "train.csv" } }
            feeds { input: "bag" field: "1:4" }
            feeds { input: "user" field: "4" }
            label { field: "0" }
            shuffle: false
          }
          loss { kind: MEAN_SQUARED_ERROR }
          optimizer { kind: SGD }
          learning_rate { base: 0.05 }
          training { batch_size: 4 epochs: 1 threads: 1 }
          limits { step_timeout_seconds: 20 }
          resources { workers: 2 ps: 3 }
          tables { name: "emb" scheme: CONSTANT value: 0.25 }
          tables {
            name: "who"
            scheme: CONSTANT
            value: -0.5
            optimizer { kind: ADAGRAD }
          }
        )pb",
        absl::StrCat("consistency { needed: 1 ", of.consistency, " } ",
                     of.edit));
    if (of.reference.unseen_clocks > 0) {
      spec.mutable_tables(0)->mutable_expiry()->set_unseen_clocks(
          of.reference.unseen_clocks);
    }
    if (of.reference.min_sightings > 0) {
      spec.mutable_tables(1)->mutable_admission()->set_min_sightings(
          of.reference.min_sightings);
    }
    spec = WithDefaults(spec);
    ASSERT_THAT(ValidateJobSpec(spec), IsEmpty());
    auto model = ParseJobModel(spec, kLateModel, "model");
    ASSERT_OK(model);
    std::vector<std::string> problems;
    const TrainingGraph graph = ResolveTrainingGraph(spec, **model, &problems);
    AssignmentBuilder builder(spec);
    AddModel(graph, kPs, &builder);
    builder.Chief().Workers(1);
    nodes_.clear();
    for (uint32_t ps = 0; ps < kPs; ++ps) {
      ps::PsServer::Options options;
      options.lanes = 2;
      nodes_.push_back(StartPsNode(options));
      builder.PsAt(nodes_.back().address());
    }
    assignment_ = builder.Build();
    for (uint32_t ps = 0; ps < kPs; ++ps) {
      ASSERT_OK(nodes_[ps].server->OpenJob(assignment_, ps));
    }
    worker::PrepareOptions options;
    options.data_root = dir_.path();
    chief_ = worker::PrepareJob(assignment_, 0, kLateModel, options, &problems);
    job_ = worker::PrepareJob(assignment_, 1, kLateModel, options, &problems);
    ASSERT_THAT(problems, IsEmpty());
    worker::JobProcess process;
    process.incarnation = kTestWorkerIncarnation;
    process.metrics = &metrics_;
    auto exchange = worker::MakeJobExchange(*chief_, process);
    ASSERT_OK(exchange);
    chief_exchange_ = std::move(exchange->parameters);
    for (int i = 0; i < kTensors; ++i) {
      const auto values = chief_->executor->parameter(TensorOf(i));
      std::fill(values.begin(), values.end(), 0.5f);
    }
    ASSERT_OK(chief_exchange_->Init(clocks()));
  }

  std::unique_ptr<worker::PsClient> MakeHeldClient() {
    worker::PsClient::Options options;
    options.job_id = assignment_.job_id();
    options.rank = 1;
    options.incarnation = kTestWorkerIncarnation + 1;
    options.pass = kTestPass;
    options.step_timeout = absl::Seconds(20);
    options.regimes = job_->regimes;
    options.clip_norm = job_->spec().optimizer().clip_norm() > 0;
    options.leaves_behind = true;
    options.has_tables = true;
    options.telemetry = metrics_.client();
    const auto routing = RoutingTable::Create(assignment_);
    EXPECT_OK(routing);
    options.routing_version = routing->version();
    for (const PsNode& node : nodes_) {
      options.ps.push_back({"ps", node.address()});
    }
    return std::make_unique<HeldClient>(
        options, routing->blocks(), worker::DenseTensorsOf(*job_),
        [this](const worker::ParameterExchange::Step& step) {
          steps_.emplace_back(step.clock, step.sample_count);
          for (const int64_t clock : held_[step.clock]) PushAsChief(clock);
          if (held_[step.clock].empty()) return;
          // They have ended, on all shards.
          EXPECT_OK(chief_exchange_->Pull(held_[step.clock].back() + 1));
        });
  }

  int TensorOf(int i) const {
    const auto& all = chief_->training.parameters;
    for (size_t at = 0; at < all.size(); ++at) {
      if (all[at].name == (i == 0 ? "w" : "v")) return static_cast<int>(at);
    }
    ADD_FAILURE() << "no such parameter";
    return 0;
  }

  void PushAsChief(int64_t clock) {
    Gradient& g = chief_gradients_[clock];
    g.samples = kChiefSamples;
    for (int i = 0; i < kTensors; ++i) {
      const auto gradient = chief_->executor->gradient(TensorOf(i));
      for (float& value : gradient) {
        value = static_cast<float>(random_.Normal());
        g.dense[i].push_back(value);
      }
    }
    worker::Batch batch;
    batch.size = kChiefSamples;
    batch.int_feeds.resize(kTables);
    const std::vector<Sample> own = ChiefSamples(clock);
    for (const Sample& sample : own) {
      batch.int_feeds[0].insert(batch.int_feeds[0].end(), sample.bag,
                                sample.bag + 3);
      batch.int_feeds[1].push_back(sample.user);
    }
    const auto rows = chief_->rows->current();
    worker::Collect(batch, rows);
    for (int t = 0; t < kTables; ++t) {
      const absl::Span<float> gradients = rows[t]->gradients();
      for (size_t i = 0; i < gradients.size(); ++i) {
        gradients[i] = static_cast<float>(random_.Normal());
        g.rows[t][rows[t]->keys()[i / kDims[t]]].push_back(gradients[i]);
      }
    }
    chief_exchange_->BeginStep({.clock = clock,
                                .sample_count = kChiefSamples,
                                .pull = false,
                                .rows = rows});
    for (int i = 0; i < kTensors; ++i) {
      chief_exchange_->OnGradientReady(static_cast<uint32_t>(i));
    }
    chief_exchange_->EndBackward({});
    EXPECT_OK(chief_exchange_->Wait());
  }
  // Those of the clock that are not rank 1's.
  std::vector<Sample> ChiefSamples(int64_t clock) const {
    const auto first = samples_.begin() + clock * 2 * kBatch;
    return {first, first + kChiefSamples};
  }

  TempDir dir_;
  Random random_{17};
  worker::WorkerMetrics metrics_{nullptr};
  std::vector<Sample> samples_;
  Held held_;
  std::map<int64_t, Gradient> chief_gradients_;
  std::vector<PsNode> nodes_;
  JobAssignment assignment_;
  std::unique_ptr<worker::PreparedJob> chief_;
  std::unique_ptr<worker::ParameterExchange> chief_exchange_;
  std::unique_ptr<worker::PreparedJob> job_;
};

class LateRowsCaseTest : public LateRowsTest,
                         public ::testing::WithParamInterface<LateCase> {};

// Rank 1 is three clocks late, then in time, one clock late, and late again
// with a gradient that is late already.
TEST_P(LateRowsCaseTest, EveryStepCountsOnce) {
  const LateCase& of = GetParam();
  Train(of, DrawSamples(10 * 2 * kBatch),
        {{0, {0, 1, 2}}, {5, {5}}, {7, {7}}, {8, {8}}});
  if (HasFatalFailure()) return;
  std::vector<int64_t> made;
  for (const auto& [clock, samples] : steps_) {
    made.push_back(clock);
    EXPECT_EQ(samples, static_cast<uint64_t>(kBatch));
  }
  ASSERT_THAT(made, ElementsAre(0, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(trained_samples_, 4 * 4u) << "at 3, 4, 6 and 9, once each";
  const ShardStatus::Worker status = StatusOfWorker();
  EXPECT_EQ(status.left_behind_clocks(), 6u);
  EXPECT_EQ(status.late_samples(), 3 * 4u)
      << "of clocks 0, 5 and 7; at 8 it was that of 7 again";

  MakeChiefs({0, 1, 2});
  MakeLate(of, 0, 3);
  MakeOwn(4);
  MakeChiefs({5});
  MakeLate(of, 5, 6);
  MakeChiefs({7, 8});
  MakeOwn(9);
  Compare();
}

// Rows that rank 1 has read are gone, and another row is there, when it pushes
// their gradients.
TEST_F(LateRowsTest, RowsThatExpireAndComeMeanwhileAreReadAsTheyAre) {
  const LateCase of = {
      .name = "",
      .consistency = "mode: SYNC_WITH_BACKUPS late: COMPENSATE compensation: 4",
      .lambda = 4,
      .reference = {.unseen_clocks = 4}};
  std::vector<Sample> samples = DrawSamples(12 * 2 * kBatch);
  const int64_t gone = -5, comes = 77, stays = 78;
  for (int64_t clock = 0; clock < 12; ++clock) {
    Sample* const chiefs = &samples[clock * 2 * kBatch];
    Sample* const own = chiefs + kBatch;
    if (clock == 0) chiefs[0].bag[0] = gone;
    if (clock == 4) chiefs[1].bag[1] = comes;
    if (clock == 9) chiefs[1].bag[1] = comes;
    if (clock != 2) continue;
    for (int i = 0; i < 2; ++i) {
      own[i].bag[0] = gone;
      own[i].bag[1] = comes;
      own[i].bag[2] = stays;
    }
  }
  Train(of, std::move(samples),
        {{1, {}}, {0, {0}}, {2, {2, 3, 4, 5, 6, 7, 8, 9}}});
  if (HasFatalFailure()) return;
  std::vector<int64_t> made;
  for (const auto& step : steps_) made.push_back(step.first);
  ASSERT_THAT(made, ElementsAre(0, 1, 2, 10, 11));
  MakeChiefs({0});
  MakeLate(of, 0, 1);
  const double before = now().RowOf(0, gone, 2)[0];
  EXPECT_GT(std::abs(before - kInitial[0]), 1e-3) << "it was trained";
  MakeChiefs({2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(now().RowOf(0, gone, 10)[0], kInitial[0]) << "it is gone";
  EXPECT_EQ(now().RowOf(0, stays, 10)[0], kInitial[0]) << "it was never there";
  EXPECT_GT(std::abs(now().RowOf(0, comes, 10)[0] - kInitial[0]), 1e-3);
  MakeLate(of, 2, 10);
  MakeOwn(11);
  Compare();
}

const LateCase kCases[] = {
    {.name = "Scale", .consistency = "mode: SYNC_WITH_BACKUPS late: SCALE"},
    {.name = "Compensate",
     .consistency = "mode: SYNC_WITH_BACKUPS late: COMPENSATE compensation: 2",
     .lambda = 2},
    {.name = "CompensateByDefault",
     .consistency = "mode: SYNC_WITH_BACKUPS late: COMPENSATE",
     .lambda = 0.04},
    {.name = "ScaleAfterATimeout",
     .consistency =
         "mode: SYNC_WITH_TIMEOUT timeout_seconds: 0.02 late: SCALE"},
    {.name = "CompensateInParts",
     .consistency = "mode: SYNC_WITH_BACKUPS late: COMPENSATE compensation: 2",
     .lambda = 2,
     .edit = "training { micro_batches: 2 }"},
    {.name = "CompensateWithDecayAndAdmission",
     .consistency = "mode: SYNC_WITH_BACKUPS late: COMPENSATE compensation: 2",
     .lambda = 2,
     .edit = "optimizer { weight_decay: 0.5 }",
     .reference = {.weight_decay = 0.5, .min_sightings = 3}},
    {.name = "ScaleClipped",
     .consistency = "mode: SYNC_WITH_BACKUPS late: SCALE",
     .edit = "optimizer { clip_norm: 0.5 }",
     .reference = {.clip_norm = 0.5}},
    {.name = "CompensateClipped",
     .consistency = "mode: SYNC_WITH_BACKUPS late: COMPENSATE compensation: 2",
     .lambda = 2,
     .edit = "optimizer { clip_norm: 0.5 } non_finite: SKIP_STEP",
     .reference = {.clip_norm = 0.5}},
};

INSTANTIATE_TEST_SUITE_P(All, LateRowsCaseTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syncline
