// Goal: TF_CONFIG means to us what it means to TensorFlow and Kubeflow, and
// what is wrong is named. Method: a table of strings with the task, cluster and
// scheduler they give, or the message; then every task of several clusters
// through the writer and back.

#include "common/cluster/cluster_config.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace syncline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "worker:1@h:1 [chief:0=c:1 worker:1=h:1] scheduler=c:1", with "hosts",
// "partial" and "alone" where they are true.
std::string Summary(const ClusterConfig& config) {
  std::string text = absl::StrCat(
      TaskName(config.self), "@", config.self_address, " [",
      absl::StrJoin(config.tasks, " ",
                    [](std::string* out, const TaskAddress& entry) {
                      absl::StrAppend(out, TaskName(entry.task), "=",
                                      entry.address);
                    }),
      "] scheduler=", config.scheduler_address);
  if (config.hosts_scheduler) absl::StrAppend(&text, " hosts");
  if (config.partial) absl::StrAppend(&text, " partial");
  if (config.alone()) absl::StrAppend(&text, " alone");
  return text;
}

struct Good {
  const char* what;
  const char* json;
  const char* summary;
};

const Good kGood[] = {
    {"TensorFlow's own example",
     R"({"cluster":{"chief":["host0:2222"],"ps":["host1:2222","host2:2222"],
         "worker":["host3:2222","host4:2222","host5:2222"]},
         "task":{"type":"worker","index":1},
         "environment":"cloud","rpc_layer":"grpc"})",
     "worker:1@host4:2222 [chief:0=host0:2222 worker:0=host3:2222 "
     "worker:1=host4:2222 worker:2=host5:2222 ps:0=host1:2222 "
     "ps:1=host2:2222] scheduler=host0:2222"},
    {"Kubeflow's test, evaluator inside the cluster",
     R"({"cluster":{"evaluator":["J-evaluator-0.ns3.svc:2222"],)"
     R"("ps":["J-ps-0.ns3.svc:2222"],"worker":["J-worker-0.ns3.svc:2222"]},)"
     R"("task":{"type":"worker","index":0},"environment":"cloud"})",
     "worker:0@J-worker-0.ns3.svc:2222 [worker:0=J-worker-0.ns3.svc:2222 "
     "ps:0=J-ps-0.ns3.svc:2222 evaluator:0=J-evaluator-0.ns3.svc:2222] "
     "scheduler=J-worker-0.ns3.svc:2222 hosts"},
    {"not set", "", "worker:0@ [] scheduler= hosts alone"},
    {"set to blanks", " \n", "worker:0@ [] scheduler= hosts alone"},
    {"empty object", "{}", "worker:0@ [] scheduler= hosts alone"},
    {"local, with its task", R"({"task":{"type":"worker","index":0}})",
     "worker:0@ [] scheduler= hosts alone"},
    {"local, with half a task", R"({"task":{"index":"0"}})",
     "worker:0@ [] scheduler= hosts alone"},
    {"empty cluster is none", R"({"cluster":{},"task":{"type":"worker"}})",
     "worker:0@ [] scheduler= hosts alone"},
    {"null cluster is none", R"({"cluster":null,"task":null})",
     "worker:0@ [] scheduler= hosts alone"},
    {"single node", R"({"cluster":{"worker":["a:1"]},
                        "task":{"type":"worker","index":0}})",
     "worker:0@a:1 [worker:0=a:1] scheduler=a:1 hosts alone"},
    {"single chief", R"({"cluster":{"chief":["a:1"]},
                         "task":{"type":"chief","index":0}})",
     "chief:0@a:1 [chief:0=a:1] scheduler=a:1 hosts alone"},
    {"the chief hosts the scheduler",
     R"({"cluster":{"chief":["c:1"],"ps":["p:1"],"worker":["w:1"]},
         "task":{"type":"chief","index":0}})",
     "chief:0@c:1 [chief:0=c:1 worker:0=w:1 ps:0=p:1] scheduler=c:1 hosts"},
    {"master is the chief",
     R"({"cluster":{"master":["m:1"],"ps":["p:1"]},
         "task":{"type":"master","index":0}})",
     "chief:0@m:1 [chief:0=m:1 ps:0=p:1] scheduler=m:1 hosts"},
    {"seen from a ps, under master",
     R"({"cluster":{"master":["m:1"],"ps":["p:1","q:1"]},
         "task":{"type":"ps","index":1}})",
     "ps:1@q:1 [chief:0=m:1 ps:0=p:1 ps:1=q:1] scheduler=m:1"},
    {"without chief worker 0 takes its place",
     R"({"cluster":{"ps":["p:1"],"worker":["v:1","w:1"]},
         "task":{"type":"worker","index":1}})",
     "worker:1@w:1 [worker:0=v:1 worker:1=w:1 ps:0=p:1] scheduler=v:1"},
    {"a scheduler task comes before the chief",
     R"({"cluster":{"scheduler":["s:1"],"chief":["c:1"],"ps":["p:1"]},
         "task":{"type":"chief","index":0}})",
     "chief:0@c:1 [chief:0=c:1 ps:0=p:1 scheduler:0=s:1] scheduler=s:1"},
    {"the scheduler's own view",
     R"({"cluster":{"scheduler":["s:1"],"worker":["w:1"]},
         "task":{"type":"scheduler","index":0}})",
     "scheduler:0@s:1 [worker:0=w:1 scheduler:0=s:1] scheduler=s:1 hosts"},
    {"index as a string",
     R"({"cluster":{"worker":["v:1","w:1"]},
         "task":{"type":"worker","index":"1"}})",
     "worker:1@w:1 [worker:0=v:1 worker:1=w:1] scheduler=v:1"},
    {"index as a string with blanks, as int() takes it",
     R"({"cluster":{"worker":["v:1","w:1"]},
         "task":{"type":"worker","index":" 1 "}})",
     "worker:1@w:1 [worker:0=v:1 worker:1=w:1] scheduler=v:1"},
    {"index as a whole float",
     R"({"cluster":{"worker":["v:1","w:1"]},
         "task":{"type":"worker","index":1.0}})",
     "worker:1@w:1 [worker:0=v:1 worker:1=w:1] scheduler=v:1"},
    {"evaluator inside the cluster",
     R"({"cluster":{"chief":["c:1"],"evaluator":["e:1"]},
         "task":{"type":"evaluator","index":0}})",
     "evaluator:0@e:1 [chief:0=c:1 evaluator:0=e:1] scheduler=c:1"},
    {"evaluator outside the cluster, any index",
     R"({"cluster":{"chief":["c:1"],"ps":["p:1"]},
         "task":{"type":"evaluator","index":7}})",
     "evaluator:7@ [chief:0=c:1 ps:0=p:1] scheduler=c:1"},
    {"evaluator beyond those listed",
     R"({"cluster":{"chief":["c:1"],"evaluator":["e:1"]},
         "task":{"type":"evaluator","index":1}})",
     "evaluator:1@ [chief:0=c:1 evaluator:0=e:1] scheduler=c:1"},
    {"a type with an empty list, and one that Go left null",
     R"({"cluster":{"chief":["c:1"],"ps":[],"worker":null},
         "task":{"type":"chief","index":0}})",
     "chief:0@c:1 [chief:0=c:1] scheduler=c:1 hosts alone"},
    {"dynamic worker: itself and all ps",
     R"({"cluster":{"worker":{"2":"w:1"},"ps":["p:1","q:1"]},
         "task":{"type":"worker","index":2}})",
     "worker:2@w:1 [worker:2=w:1 ps:0=p:1 ps:1=q:1] scheduler= partial"},
    {"dynamic worker 0",
     R"({"cluster":{"worker":{"0":"w:1"},"ps":["p:1"]},
         "task":{"type":"worker","index":0}})",
     "worker:0@w:1 [worker:0=w:1 ps:0=p:1] scheduler=w:1 hosts partial"},
    {"dynamic ps sees itself alone, under its own index",
     R"({"cluster":{"worker":{},"ps":["q:1"]},"task":{"type":"ps","index":1}})",
     "ps:1@q:1 [ps:1=q:1] scheduler= partial"},
    {"dynamic ps 0",
     R"({"cluster":{"worker":{},"ps":["p:1"]},"task":{"type":"ps","index":0}})",
     "ps:0@p:1 [ps:0=p:1] scheduler= partial"},
    {"dynamic chief finds no other task",
     R"({"cluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}})",
     "chief:0@ [] scheduler= partial"},
    {"dynamic evaluator finds no other task",
     R"({"cluster":{"worker":{},"ps":[]},
         "task":{"type":"evaluator","index":3}})",
     "evaluator:3@ [] scheduler= partial"},
    {"the older operator's key",
     R"({"sparseCluster":{"worker":{"1":"w:1"},"ps":["p:1"]},
         "task":{"type":"worker","index":1}})",
     "worker:1@w:1 [worker:1=w:1 ps:0=p:1] scheduler= partial"},
    {"the older operator's key, a ps",
     R"({"sparseCluster":{"worker":{},"ps":["q:1"]},
         "task":{"type":"ps","index":"4"}})",
     "ps:4@q:1 [ps:4=q:1] scheduler= partial"},
    {"sparse maps with gaps, as ClusterSpec takes them",
     R"({"cluster":{"chief":["c:1"],"worker":{"3":"w:1","10":"x:1"}},
         "task":{"type":"worker","index":10}})",
     "worker:10@x:1 [chief:0=c:1 worker:3=w:1 worker:10=x:1] scheduler=c:1 "
     "partial"},
    {"everything TensorFlow reads",
     R"({"cluster":{"worker":["[::1]:1","10.0.0.1:65535"]},
         "task":{"type":"worker","index":1},"environment":"cloud",
         "rpc_layer":"grpc","session_master":"grpc://h:1",
         "eval_session_master":"","service":{"a":{"b":[1,2]}},
         "model_dir":"gs://b/m"})",
     "worker:1@10.0.0.1:65535 [worker:0=[::1]:1 worker:1=10.0.0.1:65535] "
     "scheduler=[::1]:1"},
    {"rpc_layer null is absent", R"({"rpc_layer":null})",
     "worker:0@ [] scheduler= hosts alone"},
};

TEST(ParseTfConfigTest, Good) {
  for (const Good& c : kGood) {
    const auto config = ParseTfConfig(c.json);
    ASSERT_TRUE(config.ok()) << c.what << "\n" << config.status();
    EXPECT_EQ(Summary(*config), c.summary) << c.what;
  }
}

// For `bad` tasks in a cluster that is fine.
std::string WithTask(absl::string_view task) {
  return absl::StrCat(
      R"({"cluster":{"chief":["c:1"],"worker":["w:1"]},"task":)", task, "}");
}
// For bad clusters with a task that is fine.
std::string WithCluster(absl::string_view cluster) {
  return absl::StrCat(R"({"cluster":)", cluster,
                      R"(,"task":{"type":"worker","index":0}})");
}

struct Bad {
  std::string json;
  const char* message;  // a part of it
};

std::vector<Bad> BadCases() {
  return {
      // Not JSON, though protobuf's parser takes most of it.
      {"{'task':{}}", "TF_CONFIG: 1:2: not JSON: keys are written in double"},
      {"{task:{}}", "TF_CONFIG: 1:2: not JSON: expected a key"},
      {R"({"task":{"type":'worker'}})", "strings are written in double quotes"},
      {R"({"task":{},})", "a comma before '}'"},
      {R"({"cluster":{"worker":["a:1",]}})", "a comma before ']'"},
      {R"({"task":{"type":"worker","type":"ps"}})", "\"type\" occurs twice"},
      {R"({"cluster":{"ps":[],"ps":[]}})", "\"ps\" occurs twice"},
      {R"({"task":)", "it ends where a value should be"},
      {R"({"service":)" + std::string(40, '[') + std::string(40, ']') + "}",
       "nested deeper than 32"},
      {std::string((1 << 20) + 1, ' ') + "{}", "at most 1048576 are read"},
      {"cluster", "TF_CONFIG: 1:1: not JSON: expected a value"},
      // JSON, but not a TF_CONFIG.
      {"[]", "TF_CONFIG: expected an object, got a list"},
      {"null", "TF_CONFIG: expected an object, got null"},
      {R"({"Cluster":{}})", "TF_CONFIG: Cluster: unknown key; there are clust"},
      {R"({"environment":1})", "environment: expected a string, got 1"},
      {R"({"model_dir":["x"]})", "model_dir: expected a string, got a list"},
      {R"({"service":"x"})", "service: expected an object, got \"x\""},
      {R"({"rpc_layer":"grpc+verbs"})", "rpc_layer: only \"grpc\" is there"},
      {R"({"rpc_layer":7})", "rpc_layer: expected a string, got 7"},
      // The task.
      {R"({"cluster":{"worker":["w:1"]}})", "TF_CONFIG: task: missing"},
      {WithTask("[]"), "task: expected an object with type and index"},
      {WithTask("{}"), "task.type: missing"},
      {WithTask(R"({"type":"worker"})"), "task.index: missing"},
      {WithTask(R"({"type":1,"index":0})"), "task.type: expected a string"},
      {WithTask(R"({"type":"Worker","index":0})"),
       "task.type: unknown task type \"Worker\"; there are chief (or master), "
       "worker, ps, evaluator, scheduler"},
      {WithTask(R"({"type":"worker","index":-1})"),
       "task.index: expected an integer in 0..4294967295 (a string of digits "
       "will do), got -1"},
      {WithTask(R"({"type":"worker","index":0.5})"), "got 0.5"},
      {WithTask(R"({"type":"worker","index":1e300})"), "got 1e+300"},
      {WithTask(R"({"type":"worker","index":4294967296})"), "task.index: exp"},
      {WithTask(R"({"type":"worker","index":"-1"})"), "got \"-1\""},
      {WithTask(R"({"type":"worker","index":"1.5"})"), "got \"1.5\""},
      {WithTask(R"({"type":"worker","index":""})"), "got \"\""},
      {WithTask(R"({"type":"worker","index":"99999999999999999999"})"),
       "task.index: expected an integer"},
      {WithTask(R"({"type":"worker","index":true})"), "got true"},
      {WithTask(R"({"type":"worker","index":0,"Index":1})"),
       "task.Index: unknown key; there are type and index"},
      {WithTask(R"({"type":"worker","index":1})"),
       "task.index: 1 is out of range for worker; the cluster is "
       "{chief:0 = c:1, worker:0 = w:1}"},
      {WithTask(R"({"type":"chief","index":1})"),
       "1 is out of range for chief"},
      {WithTask(R"({"type":"ps","index":0})"),
       "task.type: \"ps\" is not in the cluster; the cluster is {chief:0"},
      {WithTask(R"({"type":"master","index":0})"),
       "task.type: \"master\" is not in the cluster"},
      {WithTask(R"({"type":"scheduler","index":0})"), "is not in the cluster"},
      {R"({"task":{"type":"ps","index":0}})", "ps:0 without a cluster"},
      {R"({"task":{"type":"worker","index":1}})", "worker:1 without a cluster"},
      {R"({"task":{"type":"evaluator","index":0}})", "without a cluster"},
      // The cluster.
      {WithCluster("[]"), "cluster: expected an object of task types, got a l"},
      {WithCluster(R"({"worker":["w:1"],"Ps":["p:1"]})"),
       "cluster.Ps: unknown task type \"Ps\"; there are chief"},
      {WithCluster(R"({"worker":"w:1"})"),
       "cluster.worker: expected a list of addresses, or a map"},
      {WithCluster(R"({"worker":["w:1",2]})"),
       "cluster.worker[1]: expected an address as \"host:port\", got 2"},
      {WithCluster(R"({"worker":["w"]})"),
       "cluster.worker[0]: \"w\" is not an address: it has no port"},
      {WithCluster(R"({"worker":["w:0"]})"), "port \"0\" is not in 1..65535"},
      {WithCluster(R"({"worker":["w:65536"]})"), "port \"65536\" is not in"},
      {WithCluster(R"({"worker":[""]})"), "\"\" is not an address"},
      {WithCluster(R"({"worker":["grpc://w:1"]})"), "must have no scheme"},
      {WithCluster(R"({"worker":["a b:1"]})"), "host \"a b\" is not valid"},
      {WithCluster(R"({"worker":["0.0.0.0:1"]})"),
       "is where a process listens, not where others reach it"},
      {WithCluster(R"({"worker":["w:1","w:1"]})"),
       "cluster.worker[1]: \"w:1\" is the address of cluster.worker[0] too"},
      {WithCluster(R"({"worker":["w:1"],"ps":["W:1"]})"),
       "cluster.worker[0]: \"w:1\" is the address of cluster.ps[0] too"},
      {WithCluster(R"({"worker":["w:1"],"chief":["c:1"],"master":["d:1"]})"),
       "cluster: has both chief and master"},
      {WithCluster(R"({"worker":["w:1"],"chief":["c:1","d:1"]})"),
       "cluster: has 2 chiefs; there is at most one"},
      {WithCluster(R"({"worker":["w:1"],"chief":{"1":"c:1"}})"),
       "cluster: the index of the chief must be 0"},
      {WithCluster(R"({"worker":["w:1"],"scheduler":["s:1","t:1"]})"),
       "cluster: there is at most one scheduler"},
      {WithCluster(
           R"({"worker":["w:1"],"master":["m:1"],"evaluator":["e:1"]})"),
       "cluster: master cannot be used together with evaluator"},
      {R"({"cluster":{"ps":["p:1"]},"task":{"type":"ps","index":0}})",
       "cluster: has neither a chief nor a worker"},
      {WithCluster(R"({"worker":[]})"), "has neither a chief nor a worker"},
      {WithCluster(R"({"worker":{"x":"w:1"}})"),
       "cluster.worker.x: expected an index in 0..4294967295 as the key"},
      {WithCluster(R"({"worker":{"00":"w:1"}})"),
       "worker.00: expected an index"},
      {WithCluster(R"({"worker":{"-1":"w:1"}})"), "worker.-1: expected an ind"},
      {WithCluster(R"({"worker":{"0":["w:1"]}})"),
       "cluster.worker.0: expected an address as \"host:port\", got a list"},
      {WithCluster(R"({"worker":{"1":"w:1"},"ps":[]})"),
       "task.index: 0 is out of range for worker"},
      {R"({"cluster":{"worker":{},"ps":["p:1","q:1"]},)"
       R"("task":{"type":"ps","index":2}})",
       "task.index: 2 is out of range for ps"},
      {R"({"cluster":{"worker":["w:1"]},"sparseCluster":{"ps":["p:1"]},)"
       R"("task":{"type":"worker","index":0}})",
       "sparseCluster: given besides cluster"},
  };
}

TEST(ParseTfConfigTest, Bad) {
  for (const Bad& c : BadCases()) {
    const auto config = ParseTfConfig(c.json);
    ASSERT_FALSE(config.ok()) << c.json;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(config.status().message()), HasSubstr(c.message))
        << c.json.substr(0, 200);
  }
}

TEST(ParseTfConfigTest, AllProblemsComeAtOnceOnePerLine) {
  const auto config = ParseTfConfig(
      R"({"cluster":{"worker":["w",7],"gpu":["g:1"]},"rpc_layer":"tcp",
          "task":{"type":"worker","index":5}})");
  EXPECT_THAT(
      std::vector<std::string>(absl::StrSplit(config.status().message(), '\n')),
      ElementsAre(HasSubstr("TF_CONFIG: rpc_layer: "),
                  HasSubstr("TF_CONFIG: cluster.gpu: "),
                  HasSubstr("TF_CONFIG: cluster.worker[0]: "),
                  HasSubstr("TF_CONFIG: cluster.worker[1]: "),
                  HasSubstr("TF_CONFIG: task.index: 5 is out of range")));
}

TEST(ParseTfConfigTest, TheClusterInAMessageIsBounded) {
  std::vector<std::string> workers;
  for (int i = 0; i < 1000; ++i)
    workers.push_back(absl::StrCat("\"w", i, ":1\""));
  const auto config = ParseTfConfig(
      absl::StrCat(R"({"cluster":{"worker":[)", absl::StrJoin(workers, ","),
                   R"(]},"task":{"type":"worker","index":1000}})"));
  EXPECT_THAT(std::string(config.status().message()),
              HasSubstr("worker:31 = w31:1 and 968 more}"));
}

TEST(ParseTfConfigTest, TheEnvironmentIsKept) {
  EXPECT_EQ(ParseTfConfig(R"({"environment":"cloud"})")->environment, "cloud");
}

std::vector<std::vector<TaskAddress>> Clusters() {
  using K = TaskKind;
  return {
      {{{K::kChief, 0}, "c:1"}, {{K::kWorker, 0}, "w:1"}, {{K::kPs, 0}, "p:1"}},
      {{{K::kWorker, 0}, "w:1"}},
      {{{K::kWorker, 0}, "w:1"},
       {{K::kWorker, 1}, "w:2"},
       {{K::kPs, 0}, "[::1]:1"},
       {{K::kPs, 1}, "p:2"},
       {{K::kEvaluator, 0}, "e:1"},
       {{K::kScheduler, 0}, "s:1"}},
      {{{K::kChief, 0}, "c:1"},
       {{K::kWorker, 2}, "w:2"},
       {{K::kWorker, 10}, "w:10"},
       {{K::kPs, 0}, "p:7"},
       {{K::kPs, 3}, "p:3"}},
  };
}

TEST(WriteTfConfigTest, EveryTaskOfAClusterReadsItBack) {
  for (const std::vector<TaskAddress>& tasks : Clusters()) {
    for (const TaskAddress& self : tasks) {
      const auto json = WriteTfConfig(tasks, self.task);
      ASSERT_TRUE(json.ok()) << json.status();
      const auto config = ParseTfConfig(*json);
      ASSERT_TRUE(config.ok()) << *json << config.status();
      EXPECT_EQ(config->self, self.task);
      EXPECT_EQ(config->self_address, self.address);
      ASSERT_EQ(config->tasks.size(), tasks.size());
      for (size_t i = 0; i < tasks.size(); ++i) {
        EXPECT_EQ(config->tasks[i].task, tasks[i].task);
        EXPECT_EQ(config->tasks[i].address, tasks[i].address);
      }
    }
  }
}

TEST(WriteTfConfigTest, WritesWhatKubeflowWrites) {
  using K = TaskKind;
  EXPECT_EQ(
      *WriteTfConfig({{{K::kPs, 0}, "J-ps-0.ns3.svc:2222"},
                      {{K::kWorker, 0}, "J-worker-0.ns3.svc:2222"},
                      {{K::kEvaluator, 0}, "J-evaluator-0.ns3.svc:2222"}},
                     {K::kWorker, 0}),
      R"({"cluster":{"evaluator":["J-evaluator-0.ns3.svc:2222"],)"
      R"("ps":["J-ps-0.ns3.svc:2222"],"worker":["J-worker-0.ns3.svc:2222"]},)"
      R"("task":{"type":"worker","index":0},"environment":"cloud"})");
}

TEST(WriteTfConfigTest, AnEvaluatorNeedNotBeListed) {
  const std::vector<TaskAddress> tasks = {{{TaskKind::kChief, 0}, "c:1"}};
  const auto json = WriteTfConfig(tasks, {TaskKind::kEvaluator, 5});
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(Summary(*ParseTfConfig(*json)),
            "evaluator:5@ [chief:0=c:1] scheduler=c:1");
}

TEST(WriteTfConfigTest, RefusesWhatItCannotSay) {
  using K = TaskKind;
  const std::vector<TaskAddress> tasks = {{{K::kChief, 0}, "c:1"}};
  EXPECT_THAT(
      std::string(WriteTfConfig(tasks, {K::kWorker, 0}).status().message()),
      HasSubstr("\"worker\" is not in the cluster"));
  EXPECT_FALSE(WriteTfConfig({}, {K::kChief, 0}).ok());
  EXPECT_FALSE(WriteTfConfig({{{K::kWorker, 0}, "a\",\"b:1"}}, {}).ok());
  EXPECT_FALSE(WriteTfConfig({{{K::kWorker, 0}, "a:0"}}, {}).ok());
  EXPECT_FALSE(
      WriteTfConfig({{{K::kWorker, 0}, "a:1"}, {{K::kWorker, 0}, "b:1"}}, {})
          .ok());
  EXPECT_FALSE(
      WriteTfConfig({{{K::kWorker, 0}, "a:1"}, {{K::kWorker, 1}, "a:1"}}, {})
          .ok());
}

TEST(TaskNameTest, ReadsAndWrites) {
  EXPECT_EQ(TaskName({TaskKind::kPs, 3}), "ps:3");
  EXPECT_EQ(*ParseTaskName("ps:3"), (TaskId{TaskKind::kPs, 3}));
  EXPECT_EQ(*ParseTaskName("worker"), (TaskId{TaskKind::kWorker, 0}));
  EXPECT_EQ(*ParseTaskName("master"), (TaskId{TaskKind::kChief, 0}));
  for (const char* bad : {"", ":0", "gpu:0", "worker:", "worker:-1",
                          "worker:1x", "worker:4294967296", "ps:0:1"}) {
    const auto task = ParseTaskName(bad);
    ASSERT_FALSE(task.ok()) << bad;
    EXPECT_THAT(std::string(task.status().message()),
                HasSubstr("is not a task: "));
  }
}

}  // namespace
}  // namespace syncline
