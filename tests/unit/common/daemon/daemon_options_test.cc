// Goal: flags and TF_CONFIG together give one configuration, and what is wrong
// with them is said all at once. Method: tables of command lines.

#include "common/daemon/daemon_options.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kNoTfConfig[] = "";
constexpr char kAsChief[] =
    R"({"cluster":{"chief":["c.svc:2222"],"ps":["p.svc:2222"],)"
    R"("worker":["w.svc:2222"]},"task":{"type":"chief","index":0}})";
constexpr char kAsWorker[] =
    R"({"cluster":{"chief":["c.svc:2222"],"ps":["p.svc:2222"],)"
    R"("worker":["w.svc:2222"]},"task":{"type":"worker","index":0}})";
constexpr char kAsPs[] =
    R"({"cluster":{"chief":["c.svc:2222"],"ps":["p.svc:2222"],)"
    R"("worker":["w.svc:2222"]},"task":{"type":"ps","index":0}})";
constexpr char kAsScheduler[] =
    R"({"cluster":{"chief":["c.svc:2222"],"scheduler":["s.svc:7070"]},)"
    R"("task":{"type":"scheduler","index":0}})";
constexpr char kAsDynamicPs[] =
    R"({"cluster":{"worker":{},"ps":["p.svc:2222"]},)"
    R"("task":{"type":"ps","index":3}})";
constexpr char kSingleNode[] = R"({"cluster":{"worker":["127.0.0.1:2222"]},)"
                               R"("task":{"type":"worker","index":0}})";

// "worker:0 scheduler=s:1 listen=127.0.0.1:0 advertise=", with "auto", "hosts"
// and "alone" where they are true.
std::string Summary(const DaemonOptions& options) {
  std::string text = absl::StrCat(
      TaskName(options.task), options.auto_index ? " auto" : "",
      " scheduler=", options.scheduler_address, " listen=", options.listen,
      " advertise=", options.advertise);
  if (options.hosts_scheduler) absl::StrAppend(&text, " hosts");
  if (options.alone) absl::StrAppend(&text, " alone");
  return text;
}

struct Good {
  DaemonKind kind;
  std::vector<std::string> args;
  const char* tf_config;
  const char* summary;
};

std::vector<Good> GoodCases() {
  constexpr auto kPs = DaemonKind::kPs;
  constexpr auto kWorker = DaemonKind::kWorker;
  constexpr auto kScheduler = DaemonKind::kScheduler;
  return {
      // Flags alone.
      {kPs,
       {"--scheduler=s:1"},
       kNoTfConfig,
       "ps:0 auto scheduler=s:1 listen=127.0.0.1:0 advertise="},
      {kPs,
       {"--scheduler=s:1", "--task=ps:3", "--listen=0.0.0.0:5", "--insecure"},
       kNoTfConfig,
       "ps:3 scheduler=s:1 listen=0.0.0.0:5 advertise="},
      {kWorker,
       {"--scheduler", "s:1", "--task", "worker"},
       kNoTfConfig,
       "worker:0 auto scheduler=s:1 listen=127.0.0.1:0 advertise="},
      {kWorker,
       {"--scheduler=s:1", "--task=chief"},
       kNoTfConfig,
       "chief:0 scheduler=s:1 listen=127.0.0.1:0 advertise="},
      {kWorker,
       {"--scheduler=s:1", "--advertise=me:9"},
       kNoTfConfig,
       "worker:0 auto scheduler=s:1 listen=127.0.0.1:0 advertise=me:9"},
      {kScheduler,
       {},
       kNoTfConfig,
       "worker:0 scheduler= listen=127.0.0.1:0 advertise= hosts"},
      // Nothing at all: one process is the cluster.
      {kWorker,
       {},
       kNoTfConfig,
       "worker:0 scheduler= listen=127.0.0.1:0 advertise= hosts alone"},
      {kWorker,
       {},
       kSingleNode,
       "worker:0 scheduler= listen=127.0.0.1:2222 advertise=127.0.0.1:2222 "
       "hosts alone"},
      // TF_CONFIG.
      {kWorker,
       {},
       kAsChief,
       "chief:0 scheduler= listen=127.0.0.1:2222 advertise=c.svc:2222 hosts"},
      {kWorker,
       {},
       kAsWorker,
       "worker:0 scheduler=c.svc:2222 listen=127.0.0.1:2222 "
       "advertise=w.svc:2222"},
      {kPs,
       {"--listen=0.0.0.0:2222", "--tls-cert=a", "--tls-key=b", "--tls-ca=c"},
       kAsPs,
       "ps:0 scheduler=c.svc:2222 listen=0.0.0.0:2222 advertise=p.svc:2222"},
      {kScheduler,
       {},
       kAsScheduler,
       "worker:0 scheduler= listen=127.0.0.1:7070 advertise=s.svc:7070 hosts"},
      // Both.
      {kPs,
       {"--scheduler=s:1"},
       kAsDynamicPs,
       "ps:3 scheduler=s:1 listen=127.0.0.1:2222 advertise=p.svc:2222"},
      {kWorker,
       {"--scheduler=s:1"},
       kAsChief,
       "chief:0 scheduler=s:1 listen=127.0.0.1:2222 advertise=c.svc:2222"},
      {kWorker,
       {"--scheduler=c.svc:2222"},
       kAsChief,
       "chief:0 scheduler= listen=127.0.0.1:2222 advertise=c.svc:2222 hosts"},
      {kWorker,
       {"--scheduler=s:1", "--task=worker:7"},
       kAsChief,
       "worker:7 scheduler=s:1 listen=127.0.0.1:0 advertise="},
      {kWorker,
       {"--scheduler=s:1"},
       kSingleNode,
       "worker:0 scheduler=s:1 listen=127.0.0.1:2222 "
       "advertise=127.0.0.1:2222"},
  };
}

TEST(DaemonOptionsTest, FlagsAndTfConfigMakeOneConfiguration) {
  for (const Good& c : GoodCases()) {
    const auto line = ReadDaemonOptions(c.kind, c.args, c.tf_config);
    const std::string what =
        absl::StrCat(absl::StrJoin(c.args, " "), " | ", c.tf_config);
    ASSERT_FALSE(line.exit_code.has_value()) << what << "\n" << line.text;
    EXPECT_EQ(Summary(line.options), c.summary) << what;
  }
}

struct Bad {
  DaemonKind kind;
  std::vector<std::string> args;
  const char* tf_config;
  const char* message;  // a part of it
};

std::vector<Bad> BadCases() {
  constexpr auto kPs = DaemonKind::kPs;
  constexpr auto kWorker = DaemonKind::kWorker;
  constexpr auto kScheduler = DaemonKind::kScheduler;
  return {
      {kPs, {}, kNoTfConfig, "--scheduler: needed, because TF_CONFIG is not"},
      {kPs, {"--task=ps:0"}, kNoTfConfig, "because --task is given"},
      {kPs, {}, kAsDynamicPs, "because TF_CONFIG lists no scheduler, chief"},
      {kPs, {}, kAsWorker, "TF_CONFIG: task: worker:0 is not for syncline-ps"},
      {kWorker, {}, kAsPs, "TF_CONFIG: task: ps:0 is not for syncline-worker"},
      {kWorker, {}, kAsScheduler, "a scheduler is run by syncline-scheduler"},
      {kScheduler, {}, kAsChief, "chief:0 is not for syncline-scheduler"},
      {kWorker,
       {"--task=ps", "--scheduler=s:1"},
       kNoTfConfig,
       "--task: ps:0 is not for syncline-worker"},
      {kWorker,
       {"--task=gpu:0", "--scheduler=s:1"},
       kNoTfConfig,
       "--task: \"gpu:0\" is not a task"},
      {kWorker,
       {"--scheduler=s"},
       kNoTfConfig,
       "--scheduler: \"s\" is not an address: it has no port"},
      {kWorker,
       {"--scheduler=0.0.0.0:1"},
       kNoTfConfig,
       "--scheduler: \"0.0.0.0:1\" is where a process listens"},
      {kWorker, {"--advertise=h:0"}, kNoTfConfig, "--advertise: \"h:0\""},
      {kWorker, {"--listen=2222"}, kNoTfConfig, "--listen: \"2222\""},
      {kWorker, {"--http=x"}, kNoTfConfig, "--http: \"x\""},
      // A port that others reach needs credentials, or a word that it is meant.
      {kScheduler,
       {"--listen=0.0.0.0:7070"},
       kNoTfConfig,
       "--listen: 0.0.0.0:7070 is not loopback: everyone who reaches it could "
       "use this process. Give --tls-cert, --tls-key and --tls-ca (`synctl "
       "certs` makes them), or say --insecure"},
      {kWorker, {"--listen=[::]:0"}, kNoTfConfig, "[::]:0 is not loopback"},
      {kWorker, {"--listen=10.0.0.1:0"}, kNoTfConfig, "is not loopback"},
      {kWorker, {"--tls-cert=a"}, kNoTfConfig, "all three or none"},
      {kScheduler,
       {"--listen=0.0.0.0:7070", "--insecure", "--token-file=t"},
       kNoTfConfig,
       "--token-file: tokens would come in plain text"},
      {kScheduler,
       {"--listen=127.0.0.2:7070", "--token-file=t"},
       kNoTfConfig,
       "with --listen=127.0.0.2:7070 everyone would be refused"},
      {kWorker,
       {"--tls-cert=a", "--tls-key=b", "--tls-ca=c", "--insecure"},
       kNoTfConfig,
       "--insecure: not with --tls-cert"},
      {kWorker,
       {"--tls-connection-age-seconds=0"},
       kNoTfConfig,
       "--tls-connection-age-seconds"},
      {kScheduler,
       {"--fault=record.writ:1:exit"},
       kNoTfConfig,
       "--fault: \"record.writ:1:exit\": there is no fault point"},
      {kWorker, {"--threads=-1"}, kNoTfConfig, "--threads"},
      {kWorker, {"--threads=1025"}, kNoTfConfig, "--threads"},
      {kWorker,
       {"--device=gpu"},
       kNoTfConfig,
       "\"gpu\" is no device: auto, cpu or cuda:N"},
      {kWorker, {"--device=cuda:"}, kNoTfConfig, "\"cuda:\" is no device"},
      {kWorker, {"--device=cuda:-1"}, kNoTfConfig, "\"cuda:-1\" is no device"},
      {kPs, {"--device=cpu", "--scheduler=s:1"}, kNoTfConfig, "--device"},
      {kWorker, {"--convolutions=cpu"}, kNoTfConfig, "--convolutions"},
      {kPs,
       {"--convolutions=own", "--scheduler=s:1"},
       kNoTfConfig,
       "--convolutions"},
      {kWorker, {"--cuda-graphs=on"}, kNoTfConfig, "--cuda-graphs"},
      {kPs,
       {"--cuda-graphs=off", "--scheduler=s:1"},
       kNoTfConfig,
       "--cuda-graphs"},
      {kWorker,
       {"--product-algorithms=own"},
       kNoTfConfig,
       "--product-algorithms"},
      {kPs, {"--lanes=1025", "--scheduler=s:1"}, kNoTfConfig, "--lanes"},
      {kPs,
       {"--in-flight-bytes=16777215", "--scheduler=s:1"},
       kNoTfConfig,
       "--in-flight-bytes"},
      {kPs,
       {"--table-memory=15MiB", "--scheduler=s:1"},
       kNoTfConfig,
       "--table-memory"},
      {kPs,
       {"--table-memory=8parsecs", "--scheduler=s:1"},
       kNoTfConfig,
       "--table-memory"},
      {kPs,
       {"--table-memory=1125899906842625", "--scheduler=s:1"},
       kNoTfConfig,
       "--table-memory: Value 1125899906842625 not in range"},
      {kPs,
       {"--table-disk=1025TiB", "--scheduler=s:1"},
       kNoTfConfig,
       "--table-disk: Value"},
      {kPs,
       {"--shared-memory=maybe", "--scheduler=s:1"},
       kNoTfConfig,
       "--shared-memory: maybe not in {on,off}"},
      {kWorker, {"--shared-memory="}, kNoTfConfig, "--shared-memory"},
      {kPs,
       {"--shared-memory-bytes=16777215", "--scheduler=s:1"},
       kNoTfConfig,
       "--shared-memory-bytes: Value 16777215 not in range"},
      {kPs,
       {"--shared-memory-bytes=70368744177665", "--scheduler=s:1"},
       kNoTfConfig,
       "--shared-memory-bytes"},
      {kScheduler, {"--spill-dir=/x"}, kNoTfConfig, "--spill-dir"},
      {kScheduler, {"--checkpoint-dir=/x"}, kNoTfConfig, "--checkpoint-dir"},
      {kPs,
       {"--table-disk=-1", "--scheduler=s:1"},
       kNoTfConfig,
       "--table-disk"},
      {kScheduler, {"--lease-seconds=0.4"}, kNoTfConfig, "--lease-seconds"},
      {kScheduler, {"--lease-seconds=3601"}, kNoTfConfig, "--lease-seconds"},
      {kScheduler,
       {"--lease-seconds=nan"},
       kNoTfConfig,
       "--lease-seconds: Value nan is not a number"},
      {kScheduler, {"--lease-seconds=-NaN"}, kNoTfConfig, "--lease-seconds"},
      {kScheduler, {"--lease-seconds=inf"}, kNoTfConfig, "--lease-seconds"},
      {kScheduler,
       {"--grow-pause-seconds=-1"},
       kNoTfConfig,
       "--grow-pause-seconds"},
      {kScheduler,
       {"--prepare-timeout-seconds=nan"},
       kNoTfConfig,
       "--prepare-timeout-seconds"},
      {kScheduler, {"--keep-days=nan"}, kNoTfConfig, "--keep-days"},
      {kPs,
       {"--orphan-seconds=nan", "--scheduler=s:1"},
       kNoTfConfig,
       "--orphan-seconds"},
      {kScheduler,
       {"--prepare-timeout-seconds=0.9"},
       kNoTfConfig,
       "--prepare-timeout-seconds"},
      {kScheduler,
       {"--prepare-timeout-seconds=604801"},
       kNoTfConfig,
       "--prepare-timeout-seconds"},
      {kScheduler, {"--keep-days=-1"}, kNoTfConfig, "--keep-days"},
      {kScheduler, {"--log-level=loud"}, kNoTfConfig, "--log-level"},
      {kScheduler, {"--threads=1"}, kNoTfConfig, "--threads"},
      {kScheduler, {"--scheduler=s:1"}, kNoTfConfig, "--scheduler"},
      {kPs, {"--data-root=x", "--scheduler=s:1"}, kNoTfConfig, "--data-root"},
      {kPs, {"--no-such-flag"}, kNoTfConfig, "--no-such-flag"},
      {kPs, {"stray"}, kNoTfConfig, "stray"},
      {kWorker, {}, "{'cluster':{}}", "TF_CONFIG: 1:2: not JSON"},
  };
}

TEST(DaemonOptionsTest, AGivenDataRootIsABoundaryUnlessItIsSaidNotToBe) {
  const auto options = [](std::vector<std::string> flags) {
    flags.push_back("--scheduler=s:1");
    return ReadDaemonOptions(DaemonKind::kWorker, flags, kNoTfConfig).options;
  };
  EXPECT_EQ(options({}).data_root, ".");
  EXPECT_FALSE(options({}).data_root_is_bound);
  EXPECT_EQ(options({"--data-root=d"}).data_root, "d");
  EXPECT_TRUE(options({"--data-root=d"}).data_root_is_bound);
  EXPECT_FALSE(
      options({"--data-root=d", "--data-outside-root"}).data_root_is_bound);
}

TEST(DaemonOptionsTest, WhatIsWrongIsSaid) {
  for (const Bad& c : BadCases()) {
    const auto line = ReadDaemonOptions(c.kind, c.args, c.tf_config);
    const std::string what =
        absl::StrCat(absl::StrJoin(c.args, " "), " | ", c.tf_config);
    ASSERT_TRUE(line.exit_code.has_value()) << what;
    EXPECT_EQ(*line.exit_code, 2) << what;
    EXPECT_THAT(line.text, HasSubstr(c.message)) << what;
  }
}

TEST(DaemonOptionsTest, AllProblemsComeAtOnce) {
  const auto line =
      ReadDaemonOptions(DaemonKind::kPs, {"--listen=x", "--http=y"},
                        R"({"cluster":{"worker":["w"],"gpu":[]}})");
  EXPECT_THAT(line.text, HasSubstr("syncline-ps: TF_CONFIG: cluster.gpu: "));
  EXPECT_THAT(line.text,
              HasSubstr("syncline-ps: TF_CONFIG: cluster.worker[0]: "));
  EXPECT_THAT(line.text, HasSubstr("syncline-ps: TF_CONFIG: task: missing"));
  EXPECT_THAT(line.text, HasSubstr("syncline-ps: --listen: "));
  EXPECT_THAT(line.text, HasSubstr("syncline-ps: --http: "));
  // A problem that only follows from the bad TF_CONFIG is not reported.
  EXPECT_THAT(line.text, Not(HasSubstr("--scheduler")));
}

TEST(DaemonOptionsTest, RangesIncludeTheirEnds) {
  const auto ps = ReadDaemonOptions(
      DaemonKind::kPs,
      {"--scheduler=s:1", "--lanes=1024", "--in-flight-bytes=16777216",
       "--table-memory=16MiB", "--table-disk=0"},
      "");
  ASSERT_FALSE(ps.exit_code.has_value()) << ps.text;
  EXPECT_EQ(ps.options.lanes, 1024);
  EXPECT_EQ(ps.options.in_flight_bytes, 16777216u);
  EXPECT_EQ(ps.options.table_memory_bytes, 16777216u);
  EXPECT_EQ(ps.options.table_disk_bytes, 0u);
  const auto largest = ReadDaemonOptions(
      DaemonKind::kPs,
      {"--scheduler=s:1", "--table-memory=1024TiB", "--table-disk=1024TiB",
       "--spill-dir=/data/spill", "--checkpoint-dir=/data/checkpoints",
       "--shared-memory=off", "--shared-memory-bytes=70368744177664"},
      "");
  ASSERT_FALSE(largest.exit_code.has_value()) << largest.text;
  EXPECT_EQ(largest.options.table_memory_bytes, uint64_t{1} << 50);
  EXPECT_EQ(largest.options.table_disk_bytes, uint64_t{1} << 50);
  EXPECT_EQ(largest.options.spill_dir, "/data/spill");
  EXPECT_EQ(largest.options.checkpoint_dir, "/data/checkpoints");
  EXPECT_FALSE(largest.options.shared_memory);
  EXPECT_EQ(largest.options.shared_memory_bytes, uint64_t{1} << 46);
  const auto scheduler = ReadDaemonOptions(
      DaemonKind::kScheduler,
      {"--lease-seconds=0.5", "--keep-days=0", "--prepare-timeout-seconds=1",
       "--grow-pause-seconds=0"},
      "");
  ASSERT_FALSE(scheduler.exit_code.has_value()) << scheduler.text;
  EXPECT_EQ(scheduler.options.lease, absl::Milliseconds(500));
  EXPECT_EQ(scheduler.options.grow_pause, absl::ZeroDuration());
  EXPECT_EQ(scheduler.options.keep, absl::ZeroDuration());
  EXPECT_EQ(scheduler.options.prepare_timeout, absl::Seconds(1));
  const auto worker = ReadDaemonOptions(DaemonKind::kWorker,
                                        {"--threads=1024", "--http=off"}, "");
  ASSERT_FALSE(worker.exit_code.has_value()) << worker.text;
  EXPECT_EQ(worker.options.threads, 1024);
  EXPECT_EQ(worker.options.device, "auto");
  for (const char* device : {"auto", "cpu", "cuda:0", "cuda:15"}) {
    const auto with_device = ReadDaemonOptions(
        DaemonKind::kWorker, {absl::StrCat("--device=", device)}, "");
    ASSERT_FALSE(with_device.exit_code.has_value()) << with_device.text;
    EXPECT_EQ(with_device.options.device, device);
  }
  EXPECT_EQ(worker.options.convolutions, "cudnn");
  const auto own =
      ReadDaemonOptions(DaemonKind::kWorker, {"--convolutions=own"}, "");
  ASSERT_FALSE(own.exit_code.has_value()) << own.text;
  EXPECT_EQ(own.options.convolutions, "own");
  EXPECT_EQ(worker.options.cuda_graphs, "auto");
  const auto queued =
      ReadDaemonOptions(DaemonKind::kWorker, {"--cuda-graphs=off"}, "");
  ASSERT_FALSE(queued.exit_code.has_value()) << queued.text;
  EXPECT_EQ(queued.options.cuda_graphs, "off");
  EXPECT_EQ(worker.options.product_algorithms, "measured");
  const auto of_library = ReadDaemonOptions(
      DaemonKind::kWorker, {"--product-algorithms=library"}, "");
  ASSERT_FALSE(of_library.exit_code.has_value()) << of_library.text;
  EXPECT_EQ(of_library.options.product_algorithms, "library");
  EXPECT_EQ(worker.options.http, "");
}

TEST(DaemonOptionsTest, DefaultsAreTheDocumentedOnes) {
  const auto options = ReadDaemonOptions(DaemonKind::kWorker, {}, "").options;
  EXPECT_EQ(options.program, "syncline-worker");
  EXPECT_EQ(options.http, "127.0.0.1:0");
  EXPECT_EQ(options.state_dir, "syncline-state");
  EXPECT_EQ(options.keep, absl::Hours(24 * 7));
  EXPECT_EQ(options.lease, absl::Seconds(5));
  EXPECT_EQ(options.grow_pause, absl::Minutes(2));
  EXPECT_EQ(options.prepare_timeout, absl::Minutes(10));
  EXPECT_EQ(options.in_flight_bytes, 1ull << 30);
  EXPECT_EQ(options.table_memory_bytes, 0u);
  EXPECT_FALSE(options.table_disk_bytes.has_value());
  EXPECT_EQ(options.spill_dir, "/var/tmp");
  EXPECT_EQ(options.checkpoint_dir, "");
  EXPECT_EQ(options.log_level, LogLevel::kInfo);
  EXPECT_THAT(options.notes, IsEmpty());
}

TEST(DaemonOptionsTest, NotesSayWhatAnOperatorWouldMiss) {
  EXPECT_THAT(ReadDaemonOptions(DaemonKind::kPs, {}, kAsPs).options.notes,
              ElementsAre(HasSubstr("Start it with --listen=0.0.0.0:2222")));
  EXPECT_THAT(ReadDaemonOptions(DaemonKind::kPs,
                                {"--listen=0.0.0.0:2222", "--insecure"}, kAsPs)
                  .options.notes,
              IsEmpty());
  EXPECT_THAT(ReadDaemonOptions(DaemonKind::kWorker,
                                {"--scheduler=s:1", "--task=worker"}, kAsPs)
                  .options.notes,
              ElementsAre(HasSubstr("TF_CONFIG is not looked at")));
}

TEST(DaemonOptionsTest, FaultsAreTakenAndSaid) {
  const auto line = ReadDaemonOptions(
      DaemonKind::kScheduler,
      {"--fault=record.write:2:exit", "--fault=result.store:1:hang:3"}, "");
  ASSERT_FALSE(line.exit_code.has_value()) << line.text;
  ASSERT_EQ(line.options.faults.size(), 2u);
  EXPECT_EQ(line.options.faults[0].count, 2);
  EXPECT_EQ(line.options.faults[1].hang, absl::Seconds(3));
  EXPECT_THAT(Describe(line.options), HasSubstr("fails on purpose"));
}

TEST(DaemonOptionsTest, AJobIsForTheProcessThatHostsTheScheduler) {
  const auto chief =
      ReadDaemonOptions(DaemonKind::kWorker, {"--job=j"}, kAsChief).options;
  EXPECT_EQ(chief.job_file, "j");
  const auto worker =
      ReadDaemonOptions(DaemonKind::kWorker,
                        {"--job=j", "--listen=0.0.0.0:2222", "--insecure"},
                        kAsWorker)
          .options;
  EXPECT_EQ(worker.job_file, "");
  EXPECT_THAT(worker.notes, ElementsAre(HasSubstr("--job is for the process "
                                                  "that hosts the scheduler, "
                                                  "c.svc:2222")));
}

TEST(DaemonOptionsTest, TheHostKnowsWhetherAnEvaluatorIsToCome) {
  const auto has_evaluator = [](const std::string& cluster) {
    return ReadDaemonOptions(
               DaemonKind::kWorker, {},
               absl::StrCat(R"({"cluster": )", cluster,
                            R"(, "task": {"type": "chief", "index": 0}})"))
        .options.cluster_has_evaluator;
  };
  EXPECT_TRUE(has_evaluator(
      R"({"chief": ["c:1"], "ps": ["p:1"], "evaluator": ["e:1"]})"));
  EXPECT_FALSE(has_evaluator(R"({"chief": ["c:1"], "ps": ["p:1"]})"));
}

TEST(DaemonOptionsTest, HelpTeachesAndVersionIsShort) {
  for (const DaemonKind kind :
       {DaemonKind::kPs, DaemonKind::kWorker, DaemonKind::kScheduler}) {
    const auto help = ReadDaemonOptions(kind, {"--help"}, "not even JSON");
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.text, HasSubstr("Examples:\n"));
    EXPECT_THAT(help.text, HasSubstr("--listen"));
    EXPECT_THAT(help.text, Not(HasSubstr("--fault"))) << "for tests alone";
  }
  const auto version = ReadDaemonOptions(DaemonKind::kPs, {"--version"}, "");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.text, HasSubstr("syncline-ps 0."));
}

TEST(DaemonOptionsTest, DescribeSaysWhatFollows) {
  const auto alone = ReadDaemonOptions(DaemonKind::kWorker, {"--job=j"}, "");
  EXPECT_EQ(Describe(alone.options),
            "task: worker:0\n"
            "scheduler: this process, which is alone\n"
            "listen: 127.0.0.1:0\n"
            "advertise: where it listens\n"
            "http: 127.0.0.1:0\n"
            "tls: off\n"
            "device: auto\n"
            "convolutions: cudnn\n"
            "cuda_graphs: auto\n"
            "product_algorithms: measured\n"
            "job: j\n");
}

}  // namespace
}  // namespace syncline
