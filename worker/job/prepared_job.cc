#include "worker/job/prepared_job.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_search.h"
#include "common/checkpoint/checkpoint_start.h"
#include "common/checkpoint/state_file.h"
#include "common/job/compression_rules.h"
#include "common/job/elastic_validator.h"
#include "common/job/job_spec_problems.h"
#include "common/job/local_rules.h"
#include "common/job/precision_validator.h"
#include "common/job/quorum_validator.h"
#include "common/job/step_shares.h"
#include "common/job/strategy_change.h"
#include "common/job/strategy_rules.h"
#include "common/job/worker_groups.h"
#include "common/model/graph/describe.h"
#include "common/model/mixed_samples.h"
#include "common/regime/job_regimes.h"
#include "common/system/available_memory.h"
#include "common/system/disk_thread.h"
#include "common/system/free_disk.h"
#include "common/system/log.h"
#include "common/system/malloc_policy.h"
#include "common/system/memory_claim.h"
#include "common/update/update_spec.h"
#include "common/wire/routing_table.h"
#include "worker/compute/batch_fit.h"
#include "worker/data/data_fingerprint.h"
#include "worker/embedding/job_rows.h"
#include "worker/job/compression_options.h"
#include "worker/job/job_residuals.h"
#include "worker/job/update_place.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/start_files.h"

namespace syncline::worker {
namespace {

// Of parameters that are gathered together: as much as a bucket of gradients
// has at most.
constexpr int64_t kGatherUnitBytes = int64_t{1} << 20;
constexpr size_t kRunningMean = 3;  // input of BatchNormalization

std::string DeviceText(const Executor::Options& options) {
  if (options.device == nullptr) {
    return absl::StrCat("cpu, ", options.threads,
                        options.threads == 1 ? " thread" : " threads");
  }
  const Device::Description description = options.device->description();
  std::string text(options.device->name());
  if (!description.model.empty()) {
    absl::StrAppend(&text, ", ", description.model);
  }
  if (!description.convolutions.empty()) {
    absl::StrAppend(&text, ", convolutions: ", description.convolutions);
  }
  return text;
}

// The shapes of one sample that the graph wants.
struct SampleShape {
  std::vector<FeedShape> feeds;
  int64_t class_count = 0;  // 0: regression
  int64_t label_width = 1;
  SampleDims label_dims = {};  // of the labels; empty: one
  std::vector<BucketShape> buckets;
};

class Preparation {
 public:
  Preparation(PreparedJob* job, const PrepareOptions& options,
              std::vector<std::string>* problems)
      : job_(*job), options_(options), problems_(*problems) {}

  void Run(std::string model_bytes) {
    if (!job_.trains()) {
      *job_.assignment.mutable_spec() = EvaluatorSpec(spec());
    }
    ReadRegimesOfJob();
    CheckGroups();
    if (options_.kept_data != nullptr) {
      model_version_ =
          absl::StrCat(model_bytes.size(), " ", Crc32c(model_bytes));
    }
    if (!ResolveModel(std::move(model_bytes))) return;
    CheckPlacement();
    CheckSeesCheckpoints();
    OpenData();
    CreateExecutor();
    CreateRows();
    CreateLocalSteps();
    CreateLateGradient();
  }

 private:
  const JobSpec& spec() const { return job_.assignment.spec(); }

  bool Evaluates() const {
    return job_.has_evaluator() ? job_.is_evaluator() : job_.is_chief();
  }

  // One problem per line of the message, each led by `field`.
  void AddProblems(absl::string_view field, const absl::Status& status) {
    for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
      problems_.push_back(absl::StrCat(field, ": ", line));
    }
  }

  void ReadRegimesOfJob() {
    auto regimes = ReadRegimes(job_.assignment);
    if (regimes.ok()) {
      job_.regimes = *std::move(regimes);
    } else {
      problems_.emplace_back(regimes.status().message());
    }
  }

  // By host they depend on where the workers are.
  void CheckGroups() {
    const auto groups = WorkerGroups::Of(job_.assignment);
    if (!groups.ok()) problems_.emplace_back(groups.status().message());
  }

  bool ResolveModel(std::string bytes) {
    auto model = ParseJobModel(spec(), bytes, spec().model().path());
    if (!model.ok()) {
      AddProblems("model", model.status());
      return false;
    }
    model_ = *std::move(model);
    job_.model = model_;
    for (const std::string& note : model_->notes()) {
      LogWarning("the model is trained otherwise than its file says")
          .Job(job_.assignment.job_id())
          .Field("note", note);
    }
    const size_t before = problems_.size();
    job_.training = ResolveTrainingGraph(spec(), *job_.model, &problems_);
    ReleaseValuesOf(job_.training.tables);
    return problems_.size() == before;
  }

  // Frees the initializers' values of parameters or tables.
  template <typename T>
  void ReleaseValuesOf(const std::vector<T>& list) {
    std::vector<int> initializers;
    for (const T& entry : list) {
      if (entry.initializer >= 0) initializers.push_back(entry.initializer);
    }
    model_->ReleaseValues(initializers);
  }

  // The scheduler and every member must see the same parameters.
  void CheckPlacement() {
    if (!AgreesWithAssignment()) {
      problems_.emplace_back(
          "model: its parameters are not those of the assignment; are all "
          "daemons of one version?");
      return;
    }
    if (OnlyEvaluates(spec())) return;  // it has no shards
    // Also where they are reserved.
    if (!IsWithoutPs(spec()) || spec().resources().ps() > 0) {
      const auto routing = RoutingTable::Create(job_.assignment);
      if (!routing.ok()) AddProblems("assignment", routing.status());
    }
    if (!job_.regimes.regimes().back().has_ps() ||
        spec().strategy() == HYBRID) {
      CheckAmongWorkers();
    }
  }

  // Checks the state that workers have where no ps has it.
  void CheckAmongWorkers() {
    const auto blocks =
        OwnedBlocks(TensorSizesOf(job_.training),
                    static_cast<uint32_t>(job_.assignment.workers_size()));
    if (!blocks.ok()) return AddProblems("assignment", blocks.status());
    if (job_.assignment.ps_size() > 0 && spec().resources().ps() == 0) {
      problems_.emplace_back(
          "assignment: strategy is one without ps, and there are some; are all "
          "daemons of one version?");
    }
    if (job_.is_evaluator()) return;  // it gets its values from the chief
    absl::Status start;
    if (job_.assignment.has_start_from()) {
      start = CheckStartFiles(*blocks);
      if (!start.ok()) {
        problems_.emplace_back(start.message());
        job_.found = FindInsteadOfOpened(job_.assignment, /*own_dir=*/"", start,
                                         options_.go_on);
      }
    } else if (job_.assignment.start_clock() > 0) {
      problems_.push_back(absl::StrCat(
          "assignment: start_clock is ", job_.assignment.start_clock(),
          ", without a checkpoint whose values those would be"));
    }
    // The same disk, most likely, which may hang.
    if (absl::IsUnavailable(start) || absl::IsCancelled(start)) return;
    CheckCheckpointFolder();
  }

  // A folder that cannot be written to is found before the job runs.
  void CheckCheckpointFolder() {
    if (!spec().has_checkpoint()) return;
    DiskThread disk("folder-disk");
    disk.Begin([folder = spec().checkpoint().directory()] {
      return FreeDiskBytes(folder).status();
    });
    const absl::Duration wait_max = StartDiskWaitMax(spec());
    const absl::Status free = AwaitDisk(&disk, options_.go_on, wait_max, [&] {
      return absl::StrCat(spec().checkpoint().directory(),
                          ": the disk hangs: it has not taken a file in ",
                          absl::FormatDuration(wait_max));
    });
    if (!free.ok()) AddProblems("checkpoint.directory", free);
  }

  // The evaluator of checkpoints names each one that it does not see, while
  // training goes on. That it sees none, because the file system of their
  // folder is not there, is found before the job runs. Folders below the first
  // one may still be made by the others, which prepare the job at the same
  // time. A later attempt, of a job that has trained, is not lost for this.
  void CheckSeesCheckpoints() {
    if (!job_.is_evaluator() || !EvaluatesCheckpoints(spec()) ||
        job_.assignment.attempt() > 1) {
      return;
    }
    const std::filesystem::path folder = spec().checkpoint().directory();
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) return;
    const std::filesystem::path below = folder.relative_path();
    if (below.empty()) return;
    const std::filesystem::path first = folder.root_path() / *below.begin();
    if (first == folder || std::filesystem::is_directory(first, error)) return;
    problems_.push_back(absl::StrCat(
        "checkpoint.directory: the evaluator does not see ", first.string(),
        ", below which the checkpoints are that evaluate.checkpoints has it "
        "read"));
  }

  // Reads every byte, as the exchange will: what is damaged costs the attempt
  // no step, and the scheduler goes back to the checkpoint before.
  absl::Status CheckStartFiles(const BlockMap& blocks) {
    SYNCLINE_ASSIGN_OR_RETURN(
        const auto start,
        StartFiles::Open(job_.assignment,
                         absl::StrCat("job ", job_.assignment.job_id(), ", ",
                                      job_.task_name()),
                         options_.go_on));
    SYNCLINE_ASSIGN_OR_RETURN(const DenseUpdater::Options update,
                              ReadUpdate(spec(), job_.regimes));
    return start
        ->Read(blocks, update.optimizer, options_.go_on,
               [](const BlockStateReader::Piece&) {})
        .status();
  }

  bool AgreesWithAssignment() const {
    const auto& theirs = job_.assignment.parameters();
    const auto& ours = job_.training.parameters;
    if (theirs.size() != static_cast<int>(ours.size())) return false;
    for (int i = 0; i < theirs.size(); ++i) {
      if (theirs[i].name() != ours[i].name ||
          theirs[i].has_momentum() != ours[i].momentum.has_value() ||
          theirs[i].momentum() != ours[i].momentum.value_or(0) ||
          Dims(theirs[i].dims().begin(), theirs[i].dims().end()) !=
              ours[i].dims) {
        return false;
      }
    }
    return true;
  }

  std::optional<SampleShape> FindSampleShape() {
    std::optional<SampleShape> shape = FindSampleShape(/*length=*/0);
    if (!shape.has_value()) return std::nullopt;
    for (const uint32_t length : spec().data().buckets().lengths()) {
      const std::optional<SampleShape> here = FindSampleShape(length);
      if (!here.has_value()) return std::nullopt;
      BucketShape bucket;
      bucket.length = length;
      bucket.label_width = here->label_width;
      for (const FeedShape& feed : here->feeds) {
        bucket.elements.push_back(feed.elements);
      }
      shape->buckets.push_back(std::move(bucket));
    }
    return shape;
  }

  // Without buckets.
  std::optional<SampleShape> FindSampleShape(int64_t length) {
    const auto shapes =
        job_.model->InferShapes(spec().training().batch_size(), length);
    if (!shapes.ok()) {
      AddProblems("model", shapes.status());
      return std::nullopt;
    }
    const auto per_sample = [&](ValueId value) {
      return ElementCount((*shapes)[value]) / spec().training().batch_size();
    };
    SampleShape shape;
    for (const ValueId feed : job_.training.feeds) {
      const DType dtype = job_.model->graph().values[feed].dtype;
      const Dims& dims = (*shapes)[feed];
      shape.feeds.push_back({per_sample(feed),
                             dtype == DType::kInt64,
                             {dims.begin() + 1, dims.end()}});
    }
    const int64_t scores = per_sample(job_.training.loss_output);
    const Dims& outputs = (*shapes)[job_.training.loss_output];
    switch (spec().loss().kind()) {
      case LossSpec::SOFTMAX_CROSS_ENTROPY:
        shape.class_count = outputs.back();
        shape.label_width = scores / shape.class_count;
        if (outputs.size() > 2) {
          shape.label_dims.assign(outputs.begin() + 1, outputs.end() - 1);
        }
        break;
      case LossSpec::SIGMOID_CROSS_ENTROPY:
        shape.class_count = 2;
        break;
      default:
        shape.label_width = scores;
        shape.label_dims.assign(outputs.begin() + 1, outputs.end());
    }
    return shape;
  }

  void OpenData() {
    const std::optional<SampleShape> shape = FindSampleShape();
    if (!shape.has_value()) return;
    const DataSpec& data = spec().data();
    const ReadWatch watch(options_.on_read);
    if (job_.trains()) {
      job_.train = Open("data.train", data.train(), *shape);
    }
    if (job_.train != nullptr && job_.is_chief()) {
      CheckPaddingIds();
      WarnOfLonelySamples();
      WarnOfDividedSamples();
    }
    if (Evaluates() && data.has_test()) {
      job_.test = Open("data.test", data.test(), *shape);
      const absl::Status same = CompareSources(data, options_.data_root);
      if (!same.ok()) AddProblems("data.test", same);
    } else if (!job_.trains()) {
      problems_.emplace_back(
          "data.test: missing, and this is the job's evaluator");
    }
    if (options_.kept_data != nullptr) {
      options_.kept_data->KeepOnly(job_.assignment.job_id(), opened_);
    }
  }

  // How often data.train has the row `id` of the table in a feed.
  int64_t CountIds(const TrainingTable& table, int feed, int64_t id) const {
    const int64_t count = job_.train->CountIds(feed, id);
    const bool is_row = id >= 0 && id < table.rows;
    // Ids may count from the end.
    return is_row ? count + job_.train->CountIds(feed, id - table.rows) : count;
  }

  // Lists of ids from 0 with the default padding, 0, lose one id. Where another
  // feed of the table means a row by it, one exported row cannot be both.
  void CheckPaddingIds() {
    const auto shapes = job_.model->InferShapes(1);
    if (!shapes.ok()) return;  // reported by then
    for (const TrainingTable& table : job_.training.tables) {
      std::vector<std::optional<int64_t>> paddings;
      for (const TrainingTable::Lookup& lookup : table.lookups) {
        paddings.push_back(PaddingOf(
            spec(), lookup.feed,
            ElementCount((*shapes)[job_.training.feeds[lookup.feed]])));
      }
      for (size_t i = 0; i < paddings.size(); ++i) {
        if (!paddings[i].has_value()) continue;
        const int feed = table.lookups[i].feed;
        const std::string field =
            absl::StrCat("data.feeds[", feed, "].padding");
        WarnOfPaddingIds(table, feed, field, *paddings[i]);
        for (size_t j = 0; j < paddings.size(); ++j) {
          if (paddings[j] == paddings[i] || *paddings[i] < 0 ||
              *paddings[i] >= table.rows) {
            continue;
          }
          RefusePaddingIds(table, table.lookups[j].feed, field, *paddings[i]);
        }
      }
    }
  }

  // A channel of one element has no variance. Where every batch is so the job
  // is refused; here the last one of an epoch is.
  void WarnOfLonelySamples() {
    const TrainingSpec& training = spec().training();
    const int64_t batch = training.batch_size();
    const int64_t rest =
        job_.train->size() % (batch * job_.assignment.workers_size());
    // Ranks take whole batches of what is left, in order, then the last one.
    const int64_t last = rest % batch;
    const int64_t parts = std::max<int64_t>(training.micro_batches(), 1);
    const bool is_alone = training.sync_batch_statistics()
                              ? rest == 1
                              : last > 0 && last < 2 * parts;
    if (!is_alone || training.global_batch() > 0 ||
        spec().data().has_buckets()) {
      return;
    }
    const auto shapes = job_.model->InferShapes(/*batch_size=*/1);
    if (!shapes.ok()) return;  // said elsewhere
    for (const Node& node : job_.model->graph().nodes) {
      if (node.op_type != "BatchNormalization" ||
          !FollowsBatches(node.inputs[kRunningMean])) {
        continue;
      }
      const Dims& dims = (*shapes)[node.inputs[0]];
      if (dims.size() < 2 || ElementCount(dims) != dims[1]) continue;
      job_.training.warnings.push_back(absl::StrCat(
          "data.train has ", job_.train->size(),
          " samples, so that the last step of each epoch has one alone at some "
          "worker",
          parts > 1 ? ", in a part of its batch" : "",
          ", and one has no variance: ",
          DescribeNode(node.name, node.op_type,
                       job_.model->graph().opset_version),
          " normalises it by the running statistics. PyTorch ends there with "
          "an error; another training.batch_size avoids it"));
      return;
    }
  }

  // A batch that any number of workers divide: `synctl scale` has asked for it.
  void WarnOfDividedSamples() {
    if (spec().training().global_batch() == 0 ||
        job_.training.mixed_samples.empty()) {
      return;
    }
    job_.training.warnings.push_back(absl::StrCat(
        DescribeMixed(job_.training.mixed_samples),
        " combines the samples of a batch, and each of ",
        job_.assignment.workers_size(),
        " workers those of its own part: with another number of workers the "
        "model is trained otherwise"));
  }

  // A running mean that is kept by the job, and is no constant.
  bool FollowsBatches(ValueId mean) const {
    return absl::c_any_of(job_.training.parameters, [&](const auto& parameter) {
      return parameter.value == mean && parameter.momentum.has_value();
    });
  }

  void WarnOfPaddingIds(const TrainingTable& table, int feed,
                        const std::string& field, int64_t padding) {
    const int64_t count = CountIds(table, feed, padding);
    if (count == 0) return;
    job_.training.warnings.push_back(
        absl::StrCat(count, " ids of data.train are ", padding, ", which is ",
                     field, ": they stand for no row of table '", table.name,
                     "' and train none. If that is an id like the others, set ",
                     field, " to a number that is none"));
  }

  void RefusePaddingIds(const TrainingTable& table, int feed,
                        const std::string& field, int64_t padding) {
    const int64_t count = CountIds(table, feed, padding);
    if (count == 0) return;
    problems_.push_back(absl::StrCat(
        field, ": ", padding, " is a row of table '", table.name, "' that ",
        count, " ids of data.feeds[", feed,
        "] stand for in data.train, too: the trained model would have one row "
        "for both. Set it to an id that no feed of the table means a row by"));
  }

  std::shared_ptr<const Dataset> Open(const std::string& field,
                                      const DataSource& source,
                                      const SampleShape& shape) {
    const std::string version = VersionOf(source);
    const size_t problems = problems_.size();
    opened_.push_back(field);
    if (const auto kept = FindKept(field, version)) {
      LogInfo("the data of the attempt before are used")
          .Job(job_.assignment.job_id())
          .Field("data", field)
          .Field("samples", kept->dataset->size());
      *job_.data.add_sources() = kept->print;
      return kept->dataset;
    }
    std::shared_ptr<const Dataset> dataset = Read(field, source, shape);
    if (problems_.size() == problems && !version.empty()) {
      options_.kept_data->Keep(
          job_.assignment.job_id(), field, version,
          {dataset, job_.data.sources(job_.data.sources_size() - 1)});
    }
    return dataset;
  }

  // All that a dataset of this source is made from; empty: nothing is kept.
  std::string VersionOf(const DataSource& source) const {
    if (options_.kept_data == nullptr) return "";
    const auto files =
        VersionOfFiles(source, spec().data(), options_.data_root);
    if (!files.ok()) return "";  // reading says why
    return absl::StrCat(model_version_, "\n", spec().loss().SerializeAsString(),
                        "\n", spec().data().SerializeAsString(), "\n", *files);
  }

  std::optional<KeptData::Source> FindKept(const std::string& field,
                                           const std::string& version) const {
    if (options_.kept_data == nullptr) return std::nullopt;
    return options_.kept_data->Find(job_.assignment.job_id(), field, version);
  }

  std::shared_ptr<const Dataset> Read(absl::string_view field,
                                      const DataSource& source,
                                      const SampleShape& shape) {
    auto dataset =
        Dataset::Open(source, spec().data(), options_.data_root, shape.feeds,
                      shape.class_count, shape.label_width, options_.work_dir,
                      shape.buckets, shape.label_dims);
    if (!dataset.ok()) {
      AddProblems(field, dataset.status());
      return nullptr;
    }
    if ((*dataset)->size() == 0) {
      problems_.push_back(absl::StrCat(field, ": has no samples"));
    }
    auto print = FingerprintOf(field, source, spec().data(), options_.data_root,
                               **dataset);
    if (!print.ok()) {
      AddProblems(field, print.status());
      return nullptr;
    }
    *job_.data.add_sources() = *std::move(print);
    return *std::move(dataset);
  }

  // As their daemons call their hosts. To be wrong costs nothing but a copy:
  // who is near is found out when calls are made.
  bool HasPsOnThisHost() const {
    const std::string& own = job_.member().hostname();
    for (const Participant& ps : job_.assignment.ps()) {
      if (ps.member().hostname() == own) return true;
    }
    return false;
  }

  void CreateExecutor() {
    Executor::Options options =
        ExecutorOptionsOf(spec(), /*evaluates=*/job_.test != nullptr);
    job_.threads = spec().training().threads() > 0
                       ? static_cast<int>(spec().training().threads())
                       : options_.threads;
    options.threads = job_.threads;
    options.trains = job_.trains();
    options.shared_gradients = options_.shared_memory && job_.trains() &&
                               spec().strategy() != HYBRID &&
                               !HasGroups(spec()) && !IsLocal(spec()) &&
                               HasPsOnThisHost();
    const auto device = ChooseDevice(spec().resources().device(), options_);
    if (!device.ok()) {
      return problems_.push_back(std::string(device.status().message()));
    }
    options.device = *device;
    job_.device_text = DeviceText(options);
    job_.is_on_gpu = options.device != nullptr;
    const uint64_t update_bytes = UpdateBytes(options.device);
    const auto describe_fit = [&](const absl::Status& failure,
                                  uint64_t available) {
      problems_.push_back(absl::StrCat(
          "model: ", failure.message(), "; ",
          DescribeFit(model_, job_.training, options,
                      available - std::min(available, update_bytes))));
    };
    const uint64_t available = options.device == nullptr
                                   ? AvailableMemoryBytes()
                                   : options.device->FreeBytes();
    auto executor = Executor::Create(job_.model, job_.training, options);
    if (absl::IsResourceExhausted(executor.status())) {
      return describe_fit(executor.status(), available);
    }
    if (!executor.ok()) return AddProblems("model", executor.status());
    job_.executor = *std::move(executor);
    if (update_bytes > 0) {
      Device& device = *options.device;
      const absl::Status room = CheckMemoryFor(
          absl::StrCat("values and the optimizer's state on ", device.name()),
          update_bytes, [&device] { return device.FreeBytes(); });
      if (!room.ok()) {
        job_.executor.reset();
        return describe_fit(room, device.FreeBytes());
      }
    }
    if (const std::string note = PrecisionNote(spec());
        job_.is_chief() && !note.empty()) {
      LogInfo("the job computes in 16 bits")
          .Job(job_.assignment.job_id())
          .Field("note", note);
    }
    SayHowItCompresses();
    ReleaseValuesOf(job_.training.parameters);
    // A freed copy of the file's values makes room for the gradients.
    ReturnFreedMemory();
    const absl::Status resident = job_.executor->MakeResident(options_.go_on);
    if (!resident.ok()) return AddProblems("model", resident);
    CheckRoomForCompression();
    if (job_.trains() && problems_.empty()) {
      job_.kept = KeptAtStart(job_, options_.go_on);
    }
  }

  // Bytes that the rank's exchanges take of the device when they are made.
  uint64_t UpdateBytes(Device* device) const {
    if (device == nullptr || !job_.trains()) return 0;
    // An attempt may begin by another strategy than the job did.
    std::vector<Strategy> strategies =
        StrategiesOf(spec(), ToProto(job_.regimes.regimes().back()).strategy());
    std::erase_if(strategies, [](Strategy strategy) {
      const StrategyRule* const rule = FindStrategyRule(strategy);
      return rule == nullptr || (rule->has_ps && !rule->tables_apart);
    });
    if (strategies.empty()) return 0;
    const auto bytes =
        UpdateBytesOn(*device, spec(), job_.regimes, strategies, job_.training);
    return bytes.ok() ? *bytes : 0;  // the problem is said elsewhere
  }

  // The rank's exchange takes that memory when it is made.
  void CheckRoomForCompression() {
    if (!job_.trains()) return;
    const absl::Status fraction = CheckFraction(spec(), job_.training);
    if (!fraction.ok()) problems_.emplace_back(fraction.message());
    const uint64_t bytes =
        CompressionBytes(spec(), job_.regimes, job_.training);
    if (bytes == 0) return;
    const absl::Status room =
        CheckMemoryFor("residuals and compressed gradients", bytes);
    if (!room.ok()) AddProblems("compression", room);
  }

  void SayHowItCompresses() const {
    if (!job_.is_chief()) return;
    const std::string note = CompressionNote(spec());
    if (!note.empty()) {
      LogInfo("the job compresses gradients")
          .Job(job_.assignment.job_id())
          .Field("note", note);
    }
    const int64_t start = job_.assignment.start_clock();
    if (start == 0 || !job_.regimes.At(start).compression.values) return;
    LogWarning(
        "what the owners of values and sums have kept begins anew: the bits "
        "from here on are not those of a job that was not interrupted")
        .Job(job_.assignment.job_id())
        .Field("clock", start);
  }

  // Where the device that computes gradients makes the updates, too; else says
  // why it does not.
  LocalUpdater::OnDevice ForLocalSteps(const OptimizerParams& optimizer) {
    const Executor::OnDevice executor = job_.executor->on_device();
    if (executor.stream == nullptr) return {};
    Device& device = executor.stream->device();
    if (!LocalUpdater::RunsOn(device, optimizer.kind)) {
      LogWarning("local steps are updated on the processors, which is slower")
          .Job(job_.assignment.job_id())
          .Field("device", device.name())
          .Field("why", absl::StrCat(
                            "optimizer.kind: ",
                            OptimizerSpec::Kind_Name(spec().optimizer().kind()),
                            " has no kernel there; SGD, MOMENTUM, ADAM and "
                            "ADAMW have"));
      return {};
    }
    return {.stream = executor.stream,
            .values = executor.values,
            .gradients = executor.gradients};
  }

  void CreateLocalSteps() {
    if (!IsLocal(spec()) || !job_.trains() || job_.executor == nullptr) return;
    const auto update = ReadLocalUpdate(spec(), job_.regimes);
    if (!update.ok()) {
      problems_.emplace_back(update.status().message());
      return;
    }
    std::vector<LocalUpdater::Tensor> tensors;
    std::vector<int64_t> counts;
    for (const TrainingGraph::Parameter& parameter : job_.training.parameters) {
      const int i = static_cast<int>(tensors.size());
      tensors.push_back({.name = parameter.name,
                         .value = job_.executor->parameter(i),
                         .gradient = job_.executor->gradient(i),
                         .momentum = parameter.momentum});
      counts.push_back(ElementCount(parameter.dims));
    }
    const LocalUpdater::OnDevice on_device = ForLocalSteps(update->optimizer);
    const bool is_on_device = on_device.stream != nullptr;
    const LocalUpdater::Memory memory =
        LocalUpdater::MemoryOf(update->optimizer, counts, is_on_device);
    constexpr char kWhat[] =
        "the values and the optimizer's state of local steps";
    absl::Status room =
        CheckMemoryFor(kWhat, memory.change_bytes + memory.slot_bytes);
    if (room.ok() && is_on_device) {
      Device& device = on_device.stream->device();
      room = CheckMemoryFor(absl::StrCat(kWhat, " on ", device.name()),
                            memory.device_bytes,
                            [&device] { return device.FreeBytes(); });
    }
    if (!room.ok()) return AddProblems("consistency.local", room);
    job_.local = std::make_shared<LocalUpdater>(update->optimizer, update->rule,
                                                std::move(tensors), on_device);
    job_.executor->KeepOnDevice(is_on_device);
    const absl::Status resident = job_.local->MakeResident(options_.go_on);
    if (!resident.ok()) return AddProblems("consistency.local", resident);
    if (job_.assignment.start_clock() == 0 ||
        OptimizerSlots(update->optimizer) == 0) {
      return;
    }
    LogWarning(
        "the optimizer's state of local steps begins anew: the checkpoint has "
        "none, and the bits from here on are not those of a job that was not "
        "interrupted")
        .Job(job_.assignment.job_id())
        .Field("clock", job_.assignment.start_clock());
  }

  void CreateLateGradient() {
    if (!PushesLate(spec()) || !job_.trains() || job_.executor == nullptr) {
      return;
    }
    std::vector<LateGradient::Tensor> tensors;
    std::vector<int64_t> counts;
    for (const TrainingGraph::Parameter& parameter : job_.training.parameters) {
      const int i = static_cast<int>(tensors.size());
      tensors.push_back({.value = job_.executor->parameter(i),
                         .gradient = job_.executor->gradient(i),
                         .is_running_mean = parameter.momentum.has_value()});
      counts.push_back(ElementCount(parameter.dims));
    }
    const std::optional<float> compensation = CompensationOf(spec());
    absl::Status room;
    if (compensation.has_value()) {
      room = CheckMemoryFor("the values that late gradients were computed with",
                            LateGradient::BytesOf(counts));
    }
    if (room.ok()) {
      job_.late =
          std::make_shared<LateGradient>(compensation, std::move(tensors));
      room = job_.late->MakeResident(options_.go_on);
    }
    if (!room.ok()) AddProblems("consistency.late", room);
  }

  void CreateRows() {
    if (spec().tables_size() == 0) return;
    auto rows = JobRows::Create(job_.assignment, *job_.model, job_.training,
                                job_.test != nullptr);
    if (!rows.ok()) return AddProblems("model", rows.status());
    job_.rows = *std::move(rows);
    if (job_.evaluates_checkpoints()) CreateCheckpointRows();
  }

  void CreateCheckpointRows() {
    std::vector<CheckpointRows::Table> tables;
    for (const TrainingTable& table : job_.training.tables) {
      const auto dim = static_cast<size_t>(table.dim);
      const auto initializer =
          ReadRowInitializer(spec(), static_cast<int>(tables.size()), dim);
      if (!initializer.ok()) {
        problems_.emplace_back(initializer.status().message());
        return;
      }
      tables.push_back({table.name, dim, *initializer});
    }
    job_.checkpoint_rows = std::make_unique<CheckpointRows>(std::move(tables));
  }

  PreparedJob& job_;
  std::string model_version_;        // where data are kept
  std::vector<std::string> opened_;  // fields of data
  std::shared_ptr<Model> model_;     // the job's
  const PrepareOptions& options_;
  std::vector<std::string>& problems_;
};

}  // namespace

std::string PreparedJob::task_name() const {
  const Task& task = member().task();
  return absl::StrCat(absl::AsciiStrToLower(TaskType_Name(task.type())), ":",
                      task.index());
}

absl::StatusOr<Device*> ChooseDevice(ResourcesSpec::Device wanted,
                                     const PrepareOptions& options) {
  if (wanted == ResourcesSpec::CPU) return nullptr;
  if (options.gpu == nullptr) {
    if (wanted != ResourcesSpec::CUDA) return nullptr;
    return absl::FailedPreconditionError(absl::StrCat(
        "resources.device: CUDA, but this worker computes on its processors",
        options.why_no_gpu.empty() ? "" : ": ", options.why_no_gpu));
  }
  const absl::Status health = options.gpu->health();
  if (health.ok()) return options.gpu;
  return absl::FailedPreconditionError(absl::StrCat(
      "the GPU of this worker has failed, and the process must be started "
      "again: ",
      health.message()));
}

bool FoldsStatistics(const JobSpec& spec) {
  return spec.training().sync_batch_statistics() &&
         spec.resources().workers() > 1;
}

Executor::Options ExecutorOptionsOf(const JobSpec& spec, bool evaluates) {
  const TrainingSpec& training = spec.training();
  Executor::Options options;
  options.loss = spec.loss();
  options.ignores_labels = spec.data().label().has_ignore();
  const StepShares shares = SharesOf(spec);
  options.batch_size = shares.largest;
  options.micro_batches = shares.parts;
  options.batch_max = LargestShare(spec);
  options.recompute_segments =
      static_cast<int>(std::max(1u, training.recompute_segments()));
  if (evaluates) options.eval_batch_size = training.eval_batch_size();
  options.lengths.assign(spec.data().buckets().lengths().begin(),
                         spec.data().buckets().lengths().end());
  options.seed = training.seed();
  options.takes_tf32 = spec.precision() == TF32;
  if (spec.precision() == BFLOAT16) options.precision = DType::kBfloat16;
  if (spec.precision() == FLOAT16) {
    options.precision = DType::kFloat16;
    options.scales_loss = true;
  }
  options.folds_statistics = FoldsStatistics(spec);
  options.transient_gradients = FreesGradients(spec);
  if (FreesValues(spec)) options.gather_unit_bytes = kGatherUnitBytes;
  return options;
}

JobSpec EvaluatorSpec(JobSpec spec) {
  TrainingSpec* training = spec.mutable_training();
  // Of what is trained it only has room for rows; one sample is too few for
  // BatchNormalization.
  training->set_batch_size(std::min(2u, training->batch_size()));
  training->set_micro_batches(1);
  training->set_global_batch(0);
  return spec;
}

std::vector<TensorSize> TensorSizesOf(const TrainingGraph& training) {
  std::vector<TensorSize> tensors;
  for (const TrainingGraph::Parameter& parameter : training.parameters) {
    tensors.push_back({parameter.name, ElementCount(parameter.dims)});
  }
  return tensors;
}

std::unique_ptr<PreparedJob> PrepareJob(const JobAssignment& assignment,
                                        uint32_t rank, std::string model_bytes,
                                        const PrepareOptions& options,
                                        std::vector<std::string>* problems) {
  auto job = std::make_unique<PreparedJob>();
  job->assignment = assignment;
  job->rank = rank;
  Preparation(job.get(), options, problems).Run(std::move(model_bytes));
  ReturnFreedMemory();  // of the file and what was read from it
  return job;
}

}  // namespace syncline::worker
