#include "scheduler/ctl/synctl.h"

#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/edit_distance.h"
#include "common/base/host_port.h"
#include "common/base/version.h"
#include "common/daemon/number_flag.h"
#include "common/job/profile_limits.h"
#include "common/rpc/user_calls.h"
#include "common/system/process_limits.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/address_check.h"
#include "scheduler/ctl/certs_command.h"
#include "scheduler/ctl/checkpoints_command.h"
#include "scheduler/ctl/commands.h"
#include "scheduler/ctl/doctor.h"
#include "scheduler/ctl/evaluate_command.h"
#include "scheduler/ctl/events_command.h"
#include "scheduler/ctl/generate_command.h"
#include "scheduler/ctl/local_command.h"
#include "scheduler/ctl/logs_command.h"
#include "scheduler/ctl/model_command.h"
#include "scheduler/ctl/operate_commands.h"
#include "scheduler/ctl/plan_command.h"
#include "scheduler/ctl/profile_command.h"
#include "scheduler/ctl/regime_command.h"
#include "scheduler/ctl/scale_command.h"
#include "scheduler/ctl/start_command.h"
#include "scheduler/ctl/state_command.h"
#include "scheduler/ctl/text/completion_text.h"
#include "scheduler/ctl/text/console.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/help_texts.h"
#include "scheduler/ctl/text/job_reference.h"
#include "scheduler/ctl/text/printable_stream.h"
#include "scheduler/ctl/tf_config_command.h"
#include "scheduler/ctl/token_command.h"
#include "scheduler/ctl/top_command.h"

namespace syncline::ctl {
namespace {

constexpr char kDefaultHost[] = "127.0.0.1";
// A word in the place of a command is compared and shown up to here.
constexpr size_t kCommandCharsMax = 32;
constexpr size_t kTypingErrorsMax = 2;

// The command line: options live here, commands run after parsing.
class CommandLine {
 public:
  explicit CommandLine(const SynctlEnvironment& environment)
      : environment_(environment), app_(kAbout, "synctl") {
    app_.require_subcommand(1);
    app_.footer(kFooter);
    AddOutput(&app_);
    AddScheduler(&app_);
    AddJobCommands();
    AddQueryCommands();
    AddOperations();
    AddLogs();
    AddTables();
    AddProfile();
    AddRegime();
    AddLocal();
    AddGenerate();
    AddModel();
    AddPlan();
    AddCheckpoints();
    AddCerts();
    AddTokens();
    AddState();
    AddClusterCommands();
    AddCompletion();
    AddHelp();
  }

  int Run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
      CheckScheduler();
      SecureTransport();
    } catch (const CLI::ParseError& error) {
      const std::string unknown = UnknownCommand(error);
      if (error.get_exit_code() != 0 && AsksForJson(argc, argv)) {
        Console::Standard(/*json=*/true, &std::cout, &std::cerr)
            .PrintError(absl::InvalidArgumentError(
                unknown.empty() ? error.what() : unknown));
        return kExitUsage;
      }
      if (!unknown.empty()) {
        err_ << unknown << "\n";
        return kExitUsage;
      }
      // Prints help or what is wrong.
      const int code = app_.exit(error, out_, err_);
      return code == 0 ? kExitOk : kExitUsage;
    }
    if (output_ == "json") {
      return command_(Console::Standard(/*json=*/true, &std::cout, &std::cerr));
    }
    return command_(Console::Standard(/*json=*/false, &out_, &err_));
  }

 private:
  using Command = std::function<int(const Console&)>;

  // Where the command line could not be parsed, but this much is clear.
  static bool AsksForJson(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      absl::string_view word = argv[i];
      if (word == "--output=json" || word == "-o=json" || word == "-ojson") {
        return true;
      }
      if ((word == "--output" || word == "-o") && i + 1 < argc &&
          absl::string_view(argv[i + 1]) == "json") {
        return true;
      }
    }
    return false;
  }

  // The error's text, if a word in the place of a command is none; else empty.
  std::string UnknownCommand(const CLI::ParseError& error) const {
    if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr) return "";
    const std::vector<std::string> rest = app_.remaining(/*recurse=*/true);
    if (rest.empty() || rest[0].empty() || rest[0][0] == '-') return "";
    std::string program = "synctl";
    const CLI::App* parent = &app_;
    while (!parent->get_subcommands().empty()) {
      parent = parent->get_subcommands().back();
      absl::StrAppend(&program, " ", parent->get_name());
    }
    // A command without commands of its own lacks something else.
    if (parent->get_subcommands({}).empty()) return "";
    const std::string given = rest[0].substr(0, kCommandCharsMax);
    std::string nearest;
    size_t least = kTypingErrorsMax + 1;
    for (const CLI::App* command : parent->get_subcommands({})) {
      const size_t distance = EditDistance(given, command->get_name());
      if (distance >= least) continue;
      least = distance;
      nearest = command->get_name();
    }
    return absl::StrCat(
        "'", given, "' is not a command of ", program,
        nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"),
        "\n", program, " --help lists the commands");
  }

  static void SetFooter(CLI::App* app, const char* text) {
    app->footer(absl::StrCat(text, "\n", kExitCodes));
  }

  // Before the command or after it: what is said last counts.
  void AddOutput(CLI::App* app) {
    app->add_option("--output,-o", output_, "text, or json: one object a line")
        ->check(CLI::IsMember({"text", "json"}))
        ->default_str("text");
  }
  void AddScheduler(CLI::App* app) {
    app->add_option("--scheduler", scheduler_,
                    "Scheduler's host:port; else $SYNCLINE_SCHEDULER, else " +
                        DefaultScheduler());
    app->add_option("--tls-cert", tls_.certificate,
                    "PEM file of the caller's certificate, for a cluster with "
                    "TLS; else $SYNCLINE_TLS_CERT");
    app->add_option("--tls-key", tls_.key,
                    "PEM file of its key; else $SYNCLINE_TLS_KEY");
    app->add_option("--tls-ca", tls_.authority,
                    "PEM file of the cluster's authorities; else "
                    "$SYNCLINE_TLS_CA");
  }
  void AddCompletion() {
    CLI::App* completion =
        Add("completion", "Write a script that completes commands in a shell",
            [this](const Console& console) { return RunCompletion(console); });
    completion->add_option("SHELL", shell_, "bash")
        ->required()
        ->check(CLI::IsMember({"bash"}));
    SetFooter(completion, kCompletionFooter);
  }

  int RunCompletion(const Console& console) const {
    std::vector<CompletionCommand> commands;
    for (const CLI::App* command : app_.get_subcommands({})) {
      CompletionCommand& added = commands.emplace_back();
      added.name = command->get_name();
      for (const CLI::App* below : command->get_subcommands({})) {
        added.words.push_back(below->get_name());
      }
      for (const CLI::Option* option : command->get_options()) {
        // One that help does not show.
        if (option->get_group().empty()) continue;
        const std::vector<std::string> values = ValuesOf(*option);
        for (const std::string& name : option->get_lnames()) {
          added.words.push_back(absl::StrCat("--", name));
          if (values.empty()) continue;
          added.options.push_back({added.words.back(), values});
        }
      }
    }
    AddTopics(&commands);
    // A script is no message: as it is, whatever --output says.
    console.out << BashCompletion("synctl", commands) << std::flush;
    return kExitOk;
  }

  // "TEXT:{text,json}", as help shows it, has two; empty: they are not known.
  static std::vector<std::string> ValuesOf(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const size_t begin = type.find('{');
    if (begin == type.npos || type.back() != '}') return {};
    return absl::StrSplit(type.substr(begin + 1, type.size() - begin - 2), ',');
  }

  // Adds the topics that help explains: each command, and job.
  static void AddTopics(std::vector<CompletionCommand>* commands) {
    std::vector<std::string> topics = {"job"};
    for (const CompletionCommand& command : *commands) {
      topics.push_back(command.name);
    }
    for (CompletionCommand& command : *commands) {
      if (command.name != "help") continue;
      command.words.insert(command.words.end(), topics.begin(), topics.end());
    }
  }

  void AddHelp() {
    CLI::App* help =
        Add("help", "Explain a command, or the fields of a job file",
            [this](const Console& console) { return RunHelp(console); });
    help->add_option("TOPIC", help_topic_, "A command, or job; default: all");
    help->add_option("FIELD", help_field_,
                     "Of a job: as optimizer or data.train.csv");
    SetFooter(help, kHelpFooter);
  }

  int RunHelp(const Console& console) const {
    const auto text = HelpText();
    if (!text.ok()) {
      console.PrintError(text.status());
      return kExitUsage;
    }
    if (console.json) {
      google::protobuf::Struct object;
      SetField(&object, "help", *text);
      console.PrintJson(object);
    } else {
      console.out << *text << std::flush;
    }
    return kExitOk;
  }

  absl::StatusOr<std::string> HelpText() const {
    if (help_topic_ == "job") return JobReference(help_field_);
    if (!help_field_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("help ", help_topic_, " has no part \"", help_field_,
                       "\"; `synctl help job FIELD` has"));
    }
    // app_.help() would be that of the command that was given: of help.
    if (help_topic_.empty()) {
      return app_.get_formatter()->make_help(&app_, app_.get_name(),
                                             CLI::AppFormatMode::Normal);
    }
    const auto named = app_.get_subcommands([this](const CLI::App* command) {
      return command->get_name() == help_topic_;
    });
    if (!named.empty()) return named.front()->help(app_.get_name());
    return absl::NotFoundError(absl::StrCat(
        "no help on \"", help_topic_, "\"; `synctl help` lists the commands"));
  }

  static std::string DefaultScheduler() {
    return absl::StrCat(kDefaultHost, ":", kDefaultSchedulerPort);
  }
  // The command itself, where it is one of several below a name.
  bool AsksScheduler() const {
    const CLI::App* used = app_.get_subcommands().front();
    while (!used->get_subcommands().empty()) {
      used = used->get_subcommands().front();
    }
    return used->get_option_no_throw("--scheduler") != nullptr;
  }
  // Its form; and that it was not named before a command which asks none.
  void CheckScheduler() const {
    const CLI::App* const used = app_.get_subcommands().front();
    const bool asks = AsksScheduler();
    // The doctor names whatever is wrong itself.
    if (asks && used->get_name() == "doctor") return;
    if (asks) {
      const bool given = !scheduler_.empty();
      const absl::Status form = CheckSchedulerAddress(Scheduler());
      if (form.ok()) return;
      throw CLI::ValidationError(given ? "--scheduler" : "$SYNCLINE_SCHEDULER",
                                 std::string(form.message()));
    }
    if (scheduler_.empty()) return;
    throw CLI::ValidationError(
        "--scheduler",
        absl::StrCat("synctl ", used->get_name(), " asks no scheduler"));
  }

  // A token is a password: it does not travel in plain text.
  void TakeToken(bool is_encrypted) const {
    auto token = FindToken(environment_.token, environment_.token_file);
    if (!token.ok()) {
      throw CLI::ValidationError("token",
                                 std::string(token.status().message()));
    }
    const auto scheduler = ParseHostPort(Scheduler());
    if (!token->empty() && !is_encrypted && scheduler.ok() &&
        !scheduler->IsLoopback()) {
      throw CLI::ValidationError(
          "token", "it would be sent in plain text to " + Scheduler() +
                       "; give --tls-cert, --tls-key and --tls-ca");
    }
    SetCallToken(*std::move(token));
  }

  // For a command that asks the scheduler; others may start clusters of their
  // own, over loopback.
  void SecureTransport() const {
    if (!AsksScheduler()) {
      return;
    }
    const auto given = [](const std::string& flag, const std::string& else_) {
      return flag.empty() ? else_ : flag;
    };
    const TlsFiles files = {
        given(tls_.certificate, environment_.tls.certificate),
        given(tls_.key, environment_.tls.key),
        given(tls_.authority, environment_.tls.authority)};
    TakeToken(/*is_encrypted=*/!files.empty());
    if (files.empty()) return;
    if (files.certificate.empty() || files.key.empty() ||
        files.authority.empty()) {
      throw CLI::ValidationError(
          "--tls-cert, --tls-key, --tls-ca",
          "all three or none, $SYNCLINE_TLS_CERT, _KEY and _CA included");
    }
    auto security =
        TransportSecurity::Load(files, absl::InfiniteDuration(), absl::Now());
    if (!security.ok()) {
      throw CLI::ValidationError("TLS",
                                 std::string(security.status().message()));
    }
    SetProcessSecurity(*std::move(security));
  }

  CLI::App* Add(const std::string& name, const std::string& about,
                Command command, CLI::App* parent = nullptr) {
    if (parent == nullptr) parent = &app_;
    CLI::App* sub = parent->add_subcommand(name, about);
    AddOutput(sub);
    sub->callback([this, command] { command_ = command; });
    return sub;
  }

  CLI::App* AddRemote(const std::string& name, const std::string& about,
                      Command command) {
    CLI::App* sub = Add(name, about, std::move(command));
    AddScheduler(sub);
    return sub;
  }

  CLI::App* AddOnJob(const std::string& name, const std::string& about,
                     Command command) {
    CLI::App* sub = AddRemote(name, about, std::move(command));
    sub->add_option("JOB", job_id_, "Job id, as submit and list print it")
        ->required();
    return sub;
  }

  void AddEvaluate() {
    CLI::App* evaluate = AddRemote(
        "evaluate", "Score a checkpoint on the cluster; trains nothing",
        [this](const Console& console) {
          return RunEvaluate(Scheduler(), evaluate_, console);
        });
    evaluate
        ->add_option("CHECKPOINT", evaluate_.checkpoint,
                     "JOB, for its last one, JOB@CLOCK, or its folder")
        ->required();
    evaluate->add_option("--data", evaluate_.data,
                         "Path of test data, in the format of data.test, in "
                         "place of the job's");
    evaluate->add_option("--model", evaluate_.model_file,
                         "The ONNX file that the job was submitted with, where "
                         "the scheduler does not have it any more");
    evaluate
        ->add_option("--set", evaluate_.settings,
                     "A field over the job's, as in metrics=[AUC]; may be "
                     "repeated")
        ->type_name("FIELD=VALUE")
        ->allow_extra_args(false);
    evaluate->add_option("--key", evaluate_.client_key, "As of submit");
    SetFooter(evaluate, kEvaluateFooter);
  }

  void AddJobCommands() {
    CLI::App* submit = AddRemote(
        "submit", "Send a job to the cluster", [this](const Console& console) {
          submit_.traceparent = environment_.traceparent;
          submit_.planner = environment_.planner;
          return RunSubmit(Scheduler(), submit_, console);
        });
    submit->add_option("FILE", submit_.job_file, "Job file")->required();
    AddSettings(submit, &submit_.overrides);
    submit->add_flag("--watch,-w", submit_.watch, "Follow it to its end");
    submit->add_option("--key", submit_.client_key,
                       "A name for this submission, up to 128 bytes: repeated "
                       "with the same key it finds the job of the first");
    submit->add_option("--trace-id", submit_.trace_id,
                       "32 hexadecimal digits that the logs of all processes "
                       "carry for this job; else the one in $TRACEPARENT, else "
                       "a new one");
    submit
        ->add_option("--from", submit_.start.from,
                     "Start from a checkpoint: JOB, JOB@CLOCK or its folder")
        ->check([](const std::string& from) {
          return from.empty() ? std::string("is empty: name a job or a folder")
                              : std::string();
        });
    submit->add_flag("--weights-only", submit_.start.weights_only,
                     "Take the values alone from there, and begin at clock 0");
    AddWeights(submit, &submit_.overrides);
    SetFooter(submit, kSubmitFooter);
    CLI::App* resume = AddOnJob(
        "resume", "Go on with a job that has ended, from its last checkpoint",
        [this](const Console& console) {
          resume_.job_id = job_id_;
          return RunResume(Scheduler(), resume_, console);
        });
    resume->add_flag("--watch,-w", resume_.watch, "Follow it to its end");
    resume->add_option("--key", resume_.client_key, "As of submit");
    SetFooter(resume, kResumeFooter);
    AddEvaluate();

    SetFooter(AddOnJob("watch", "Follow a job to its end",
                       [this](const Console& console) {
                         return RunWatch(Scheduler(), job_id_, console);
                       }),
              kWatchFooter);
    CLI::App* cancel =
        AddOnJob("cancel", "End a job", [this](const Console& console) {
          return RunCancel(Scheduler(), job_id_, reason_, console);
        });
    cancel->add_option("--reason", reason_, "Recorded with the job");
    SetFooter(cancel, kCancelFooter);
    CLI::App* download = AddOnJob("download", "Fetch a job's results and logs",
                                  [this](const Console& console) {
                                    return RunDownload(Scheduler(), job_id_,
                                                       names_, to_, console);
                                  });
    download->add_option("NAME", names_,
                         "Files, as `synctl get` lists them; default: all but "
                         "the model as submitted");
    download->add_option("--to", to_, "Folder; default: the job's id");
    SetFooter(download, kDownloadFooter);
  }

  void AddQueryCommands() {
    CLI::App* list =
        AddRemote("list", "List jobs, newest first", [this](const Console& c) {
          return RunList(Scheduler(), states_, limit_, c);
        });
    list->add_option("--state", states_,
                     "Only these: queued, preparing, running, succeeded, "
                     "failed, cancelled");
    list->add_option("--limit", limit_, "At most this many; default 100");
    SetFooter(list, kListFooter);
    SetFooter(AddOnJob("get", "Show one job in full",
                       [this](const Console& console) {
                         return RunGet(Scheduler(), job_id_, console);
                       }),
              kGetFooter);
    SetFooter(AddOnJob("why", "Say why a job waits, is slow, or went back",
                       [this](const Console& console) {
                         return RunWhy(Scheduler(), job_id_, console);
                       }),
              kWhyFooter);
    CLI::App* events = AddOnJob("events", "List all that has happened to a job",
                                [this](const Console& console) {
                                  events_.scheduler = Scheduler();
                                  events_.job_id = job_id_;
                                  return RunEvents(events_, console);
                                });
    events->add_flag("--follow,-f", events_.follow,
                     "And what happens to it, until it ends");
    SetFooter(events, kEventsFooter);
  }

  void AddOperations() {
    CLI::App* checkpoint =
        AddOnJob("checkpoint", "Have a running job write a checkpoint now",
                 [this](const Console& console) {
                   checkpoint_.scheduler = Scheduler();
                   checkpoint_.job_id = job_id_;
                   return RunCheckpoint(checkpoint_, console);
                 });
    checkpoint
        ->add_option("--timeout", checkpoint_.timeout_seconds,
                     "Seconds to wait for it; default 300")
        ->check(CLI::Range(1.0, 1e6))
        ->check(RefuseNaN);
    SetFooter(checkpoint, kCheckpointFooter);
    CLI::App* scale =
        AddOnJob("scale", "Have a job go on with another number of workers",
                 [this](const Console& console) {
                   scale_.scheduler = Scheduler();
                   scale_.job_id = job_id_;
                   return RunScale(scale_, console);
                 });
    scale->add_option("--workers", scale_.workers, "How many")->required();
    scale->add_option("--reason", scale_.reason,
                      "For people, at most 256 bytes");
    SetFooter(scale, kScaleFooter);
    const auto add = [this](const std::string& name, const std::string& about,
                            int (*run)(const UseOptions&, const Console&)) {
      CLI::App* command =
          AddRemote(name, about, [this, run](const Console& console) {
            use_.scheduler = Scheduler();
            return run(use_, console);
          });
      command->add_option("TASK", use_.task, "Such as ps:1, with its index")
          ->required();
      SetFooter(command, kUseFooter);
      return command;
    };
    for (CLI::App* const command :
         {add("cordon", "Give a member no more jobs", RunCordon),
          add("drain", "Have a member's job leave it, and give it no more",
              RunDrain)}) {
      command->add_option("--reason", use_.reason,
                          "For people, at most 256 bytes");
      if (command->get_name() != "drain") continue;
      command
          ->add_option("--timeout", use_.timeout_seconds,
                       "Seconds to wait until the job has left; 0: not at "
                       "all; default 600")
          ->check(CLI::Range(0.0, 1e6))
          ->check(RefuseNaN);
    }
    add("uncordon", "Give a member jobs again", RunUncordon);
  }

  void AddLogs() {
    CLI::App* logs = AddOnJob("logs", "Print what a job's members log",
                              [this](const Console& console) {
                                logs_.scheduler = Scheduler();
                                logs_.job_id = job_id_;
                                return RunLogs(logs_, console);
                              });
    logs->add_flag("--follow,-f", logs_.follow,
                   "Go on with what they log until the job has ended");
    logs->add_option("--task", logs_.task,
                     "One of them, such as worker:1 or ps:0; default: all");
    logs->add_option("--tail", logs_.tail,
                     "Only this many of the last lines of each, at least 1; "
                     "default: all");
    SetFooter(logs, kLogsFooter);
  }

  void AddTables() {
    CLI::App* tables = AddRemote(
        "tables",
        "Show a job's embedding tables: rows, memory, disk, hit rates",
        [this](const Console& console) {
          return RunTables(Scheduler(), job_id_, console);
        });
    tables->add_option("JOB", job_id_,
                       "Job id; default: the newest that is running");
    SetFooter(tables, kTablesFooter);
  }

  void AddProfile() {
    CLI::App* profile =
        AddOnJob("profile", "Show where the time of a running job's steps goes",
                 [this](const Console& console) {
                   profile_.scheduler = Scheduler();
                   profile_.job_id = job_id_;
                   return RunProfile(profile_, console);
                 });
    profile
        ->add_option("--steps", profile_.steps, "Steps to record; default 20")
        ->check(CLI::Range(1u, kProfileStepsMax));
    profile->add_option("--rank", profile_.rank,
                        "Which worker; default 0, the chief");
    profile->add_option("--trace", profile_.trace_file,
                        "File for a trace, for chrome://tracing or Perfetto");
    profile
        ->add_option("--timeout", profile_.timeout_seconds,
                     "Seconds to wait for the steps; default 300")
        ->check(CLI::Range(1.0, 1e6))
        ->check(RefuseNaN);
    SetFooter(profile, kProfileFooter);
  }

  void AddRegime() {
    CLI::App* regime =
        AddOnJob("regime", "Change how a running job trains, without a restart",
                 [this](const Console& console) {
                   regime_.scheduler = Scheduler();
                   regime_.job_id = job_id_;
                   return RunRegime(regime_, console);
                 });
    regime->add_option("--mode", regime_.mode, "How gradients are applied")
        ->type_name("{sync,bounded-staleness,async}");
    regime->add_option("--bound", regime_.bound,
                       "Clocks that a worker may be ahead of the slowest one; "
                       "for bounded-staleness");
    regime->add_option("--learning-rate-factor", regime_.learning_rate_factor,
                       "The rate of the job's schedule is multiplied by it; "
                       "> 0 and at most 1e6; default: 1 / workers where sync "
                       "ends, 1 where it begins");
    regime
        ->add_option("--strategy", regime_.strategy,
                     "Who reduces gradients and updates parameters; in sync "
                     "alone, and to parameter-server only if the job has "
                     "reserved ps")
        ->type_name("{parameter-server,all-reduce,sharded}");
    regime->add_option("--sharding-stage", regime_.sharding_stage,
                       "With --strategy sharded: 1 to 3; default, and all "
                       "that can be: the one that the job's steps are "
                       "planned for");
    regime
        ->add_option(
            "--wire-type", regime_.wire_type,
            "The type in which gradients and values travel to and from "
            "the ps, or by all-reduce among workers; none that is wider "
            "than the job began with")
        ->type_name("{float32,bfloat16,float16}");
    regime
        ->add_option("--compression", regime_.compression,
                     "How workers compress gradients for the ps; what was kept "
                     "back goes with the next step")
        ->type_name("{none,int8,top-k,terngrad}");
    regime->add_option("--reason", regime_.reason, "Recorded with the job");
    regime
        ->add_option("--timeout", regime_.timeout_seconds,
                     "Seconds to wait for the change; default 300")
        ->check(CLI::Range(1.0, 1e6))
        ->check(RefuseNaN);
    SetFooter(regime, kRegimeFooter);
  }

  static void AddWeights(CLI::App* command, JobOverrides* overrides) {
    command->add_option("--weights", overrides->weights,
                        "Start with the values of a safetensors file, at clock "
                        "0: start.weights");
    command
        ->add_option("--rename", overrides->renames,
                     "OLD=NEW: what the model calls tensors of that file; "
                     "each * of NEW is the one of OLD in that place; an empty "
                     "NEW leaves them out. May be repeated; the first that "
                     "fits counts")
        ->allow_extra_args(false);
    command->add_flag("--allow-missing", overrides->allow_missing,
                      "Parameters that the file lacks keep their initial "
                      "values");
  }

  // One value an option, so that what follows it may be the job file.
  static void AddSettings(CLI::App* command, JobOverrides* overrides) {
    command
        ->add_option("--set", overrides->settings,
                     "A field over the file's, as in learning_rate.base=0.1; "
                     "may be repeated")
        ->type_name("FIELD=VALUE")
        ->allow_extra_args(false);
  }

  void AddLocal() {
    CLI::App* local =
        Add("local", "Run one job on a cluster of its own on this machine",
            [this](const Console& console) {
              local_.binary_dir = environment_.binary_dir;
              local_.planner = environment_.planner;
              local_.bounds_data = !local_.data_root.empty();
              if (local_.data_root.empty()) {
                local_.data_root = environment_.data_root;
              }
              return RunLocal(local_, console);
            });
    local->add_option("FILE", local_.job_file, "Job file")->required();
    local
        ->add_option("--ps", local_.size.ps,
                     "Parameter servers; default: what the job asks for")
        ->check(CLI::Range(1, 1 << 30));
    local
        ->add_option("--workers", local_.size.workers,
                     "Workers, the chief among them; default: likewise")
        ->check(CLI::Range(1, 1 << 30));
    AddSettings(local, &local_.size);
    AddWeights(local, &local_.size);
    local->add_flag("--evaluator", local_.evaluator,
                    "Start an evaluator: it evaluates while the others train");
    local
        ->add_option("--threads", local_.threads,
                     "Per worker, unless the job says; default: the cores, "
                     "shared equally")
        ->check(CLI::Range(0, 1024));
    local->add_option("--data-root", local_.data_root,
                      "Folder of the job's data, and nothing outside it is "
                      "read; else $SYNCLINE_DATA, else the job file's, and "
                      "paths may lead out of these");
    local->add_option("--out", local_.out_dir,
                      "Folder for results; default: syncline-out/NAME-TIME");
    local->add_flag("--keep", local_.keep, "Keep the cluster's own state too");
    SetFooter(local, kLocalFooter);
  }

  void AddGenerate() {
    CLI::App* generate =
        app_.add_subcommand("generate", "Write a data set to train on");
    generate->require_subcommand(1);
    SetFooter(generate, kGenerateExamples);
    CLI::App* criteo = Add(
        "criteo", "Click logs in Criteo's format, with a hidden teacher",
        [this](const Console& console) {
          return RunGenerateCriteo(criteo_, console);
        },
        generate);
    criteo->add_option("--rows", criteo_.rows, "Lines to write")->required();
    criteo->add_option("--first-row", criteo_.first_row,
                       "Number of the first; default 0. One teacher's training "
                       "and test sets are different rows");
    criteo->add_option("--vocabulary", criteo_.generator.vocabulary,
                       "Values over the 26 categories; default 10,000,000");
    criteo->add_option("--zipf", criteo_.generator.zipf,
                       "Exponent of their frequencies; default 1.05");
    criteo->add_option("--seed", criteo_.generator.seed,
                       "Of rows and teacher; default 0");
    criteo->add_option("--out", criteo_.path, "File to write")->required();
    SetFooter(criteo, kGenerateFooter);
  }

  void AddModel() {
    CLI::App* model = Add(
        "model", "Write a model of the zoo to standard output",
        [this](const Console& console) { return RunModel(model_, console); });
    model->add_option("NAME", model_.name, "Model; default: list them");
    model->add_option("--set", model_.settings, "key=value; may be repeated");
    SetFooter(model, kModelFooter);
  }

  void AddPlan() {
    CLI::App* plan =
        Add("plan", "Show what a job will take, before anything runs",
            [this](const Console& console) {
              return RunPlan(plan_, environment_.planner, console);
            });
    plan->add_option("FILE", plan_.job_file, "Job file")->required();
    const auto add = [plan](const std::string& name, auto& option,
                            const std::string& about) {
      plan->add_option(name, option, about + "; default: the job's")
          ->check(CLI::Range(1, 1 << 30));
    };
    add("--batch-size", plan_.overrides.batch_size, "Samples a step");
    add("--micro-batches", plan_.overrides.micro_batches,
        "Parts of a batch, one after the other");
    add("--recompute-segments", plan_.overrides.recompute_segments,
        "Segments of the forward pass");
    add("--workers", plan_.overrides.workers, "Workers");
    add("--ps", plan_.overrides.ps, "Parameter servers");
    AddSettings(plan, &plan_.overrides);
    AddWeights(plan, &plan_.overrides);
    plan->add_option("--tensors", plan_.tensors,
                     "Largest tensors to list; default 10");
    SetFooter(plan, kPlanFooter);
  }

  void AddTop() {
    CLI::App* top = AddRemote("top", "Show jobs, workers and members live",
                              [this](const Console& console) {
                                top_.scheduler = Scheduler();
                                return RunTop(top_, console);
                              });
    top->add_flag("--once", top_.once, "Show them a single time, and end");
    top->add_option("--period", top_.period_seconds,
                    "Seconds between two looks; default 2")
        ->check(CLI::Range(0.2, 3600.0))
        ->check(RefuseNaN);
    SetFooter(top, kTopFooter);
  }

  void AddCheckpoints() {
    CLI::App* group = app_.add_subcommand(
        "checkpoints", "Look at checkpoints in folders of this machine");
    group->require_subcommand(1);
    SetFooter(group, kCheckpointsFooter);
    CLI::App* list = Add(
        "list", "List those in a folder, or in the folders of jobs below it",
        [this](const Console& console) {
          return RunCheckpointsList(paths_.front(), console);
        },
        group);
    CLI::App* show = Add(
        "show", "Show a checkpoint's manifest",
        [this](const Console& console) {
          return RunCheckpointsShow(paths_.front(), console);
        },
        group);
    CLI::App* verify = Add(
        "verify", "Read every byte of a checkpoint",
        [this](const Console& console) {
          return RunCheckpointsVerify(paths_.front(), environment_.checkpoints,
                                      console);
        },
        group);
    CLI::App* to_file = Add(
        "export", "Write a checkpoint's values as safetensors or ONNX",
        [this](const Console& console) {
          export_.path = paths_.front();
          return RunCheckpointsExport(export_, environment_.checkpoints,
                                      console);
        },
        group);
    to_file
        ->add_option("--to", export_.output,
                     "File to write: FILE.safetensors, or FILE.onnx with "
                     "--model")
        ->required();
    to_file->add_option("--model", export_.model_file,
                        "The ONNX file that the job was submitted with");
    CLI::App* drop = Add(
        "delete", "Delete checkpoints",
        [this](const Console& console) {
          return RunCheckpointsDelete(paths_, console);
        },
        group);
    for (CLI::App* const command : {list, show, verify, to_file}) {
      command->add_option("FOLDER", paths_, "Folder")->required()->expected(1);
    }
    drop->add_option("FOLDER", paths_, "Folders of checkpoints")->required();
    for (CLI::App* const command : {list, show, verify, to_file, drop}) {
      SetFooter(command, kCheckpointsFooter);
    }
  }

  void AddCerts() {
    CLI::App* certs = app_.add_subcommand(
        "certs", "Make and show the certificates of a cluster with TLS");
    certs->require_subcommand(1);
    SetFooter(certs, kCertsFooter);
    CLI::App* create = Add(
        "create", "Make certificates, and the authority that signs them",
        [this](const Console& console) {
          return RunCertsCreate(certs_, console);
        },
        certs);
    create->add_option("IDENTITY", certs_.identities,
                       "ROLE, ROLE/INDEX or client/NAME, as worker/3; several "
                       "in one certificate: chief/0+scheduler. Default: one "
                       "for each role, good for any index");
    create->add_option("--dir", certs_.dir, "Folder to write them to")
        ->required();
    create->add_option("--cluster", certs_.cluster,
                       "Name of the cluster; default syncline");
    create
        ->add_option("--days", certs_.days,
                     "How long certificates are valid; default 90")
        ->check(CLI::Range(1, 36500));
    create
        ->add_option("--ca-days", certs_.authority_days,
                     "How long a new authority is valid; default 3650")
        ->check(CLI::Range(1, 36500));
    SetFooter(create, kCertsFooter);
    CLI::App* show = Add(
        "show", "Show whom a certificate names, and until when",
        [this](const Console& console) {
          return RunCertsShow(certificate_file_, console);
        },
        certs);
    show->add_option("FILE", certificate_file_, "PEM file")->required();
    SetFooter(show, kCertsFooter);
  }

  void AddState() {
    CLI::App* state = app_.add_subcommand(
        "state", "Save the scheduler's state, and check a saved one");
    state->require_subcommand(1);
    SetFooter(state, kStateFooter);
    CLI::App* backup = Add(
        "backup", "Save the scheduler's state as an archive",
        [this](const Console& console) {
          return RunStateBackup(Scheduler(), state_path_, console);
        },
        state);
    AddScheduler(backup);
    backup->add_option("FILE", state_path_, "Archive to write")->required();
    SetFooter(backup, kStateFooter);
    CLI::App* verify = Add(
        "verify", "Check an archive of `state backup`, or a state folder",
        [this](const Console& console) {
          return RunStateVerify(state_path_, environment_.state_checker,
                                console);
        },
        state);
    verify->add_option("PATH", state_path_, "The archive or the folder")
        ->required();
    SetFooter(verify, kStateFooter);
  }

  void AddTokens() {
    CLI::App* tokens = app_.add_subcommand(
        "token", "Edit the file of the tokens that people need");
    tokens->require_subcommand(1);
    SetFooter(tokens, kTokenFooter);
    const auto add = [&](const std::string& name, const std::string& about,
                         int (*run)(const TokenOptions&, const Console&)) {
      CLI::App* command = Add(
          name, about,
          [this, run](const Console& console) { return run(token_, console); },
          tokens);
      command->add_option("--file", token_.file, "The scheduler's --token-file")
          ->required();
      SetFooter(command, kTokenFooter);
      return command;
    };
    CLI::App* create =
        add("create", "Make a token and print it", RunTokenCreate);
    create->add_option("NAME", token_.name, "Whose it is")->required();
    create
        ->add_option("--role", token_.role,
                     "viewer, submitter, operator or admin; default viewer")
        ->check(CLI::IsMember({"viewer", "submitter", "operator", "admin"}));
    create
        ->add_option("--tenant", token_.tenant,
                     "The tenant whose jobs, results, checkpoints and data "
                     "it is for, and no others; default: none")
        ->check([](const std::string& name) {
          return name.empty() ? "a tenant has a name; leave --tenant out for "
                                "a token without one"
                              : "";
        });
    create
        ->add_option("--days", token_.days,
                     "How long it is good for; 0: for ever; default 90")
        ->check(CLI::Range(0, 36500));
    add("list", "List whose tokens there are", RunTokenList);
    add("revoke", "Take a token out", RunTokenRevoke)
        ->add_option("NAME", token_.name, "Whose it is")
        ->required();
  }

  void AddClusterCommands() {
    SetFooter(AddRemote("cluster", "List the cluster's members",
                        [this](const Console& console) {
                          return RunCluster(Scheduler(), console);
                        }),
              kClusterFooter);
    AddTop();
    CLI::App* doctor = AddRemote(
        "doctor", "Check a configuration", [this](const Console& console) {
          DoctorOptions options;
          options.tf_config = environment_.tf_config;
          options.scheduler =
              scheduler_.empty() ? environment_.scheduler : scheduler_;
          options.offline = offline_;
          options.version = kVersion;
          return RunDoctor(options, console);
        });
    doctor->add_flag("--offline", offline_, "Do not touch the network");
    SetFooter(doctor, kDoctorFooter);
    CLI::App* tf_config =
        AddRemote("tf-config", "Write a task's TF_CONFIG",
                  [this](const Console& console) {
                    return RunTfConfig(Scheduler(), cluster_, task_, console);
                  });
    tf_config->add_option("--task", task_, "Such as worker:1")->required();
    tf_config->add_option("--cluster", cluster_,
                          "TYPE=ADDRESS[,ADDRESS...]; default: the members of "
                          "a running cluster");
    SetFooter(tf_config, kTfConfigFooter);
    CLI::App* version =
        Add("version", "Print the version", [](const Console& console) {
          google::protobuf::Struct object;
          SetField(&object, "version", kVersion);
          if (console.json) {
            console.PrintJson(object);
          } else {
            console.out << "synctl " << kVersion << std::endl;
          }
          return kExitOk;
        });
    SetFooter(version, kVersionFooter);
  }

  std::string Scheduler() const {
    if (!scheduler_.empty()) return scheduler_;
    return environment_.scheduler.empty() ? DefaultScheduler()
                                          : environment_.scheduler;
  }

  const SynctlEnvironment& environment_;
  PrintableStream out_{&std::cout};
  PrintableStream err_{&std::cerr};
  CLI::App app_;
  Command command_;
  std::string output_ = "text";
  std::string scheduler_;
  TlsFiles tls_;
  CertsOptions certs_;
  std::string certificate_file_;
  TokenOptions token_;
  std::string state_path_;
  SubmitOptions submit_;
  EvaluateOptions evaluate_;
  ResumeOptions resume_;
  CheckpointOptions checkpoint_;
  UseOptions use_;
  EventsOptions events_;
  std::string job_id_;
  std::string reason_ = "cancelled by the user";
  std::vector<std::string> names_;
  std::string to_;
  std::vector<std::string> states_;
  uint32_t limit_ = 0;
  LocalOptions local_;
  GenerateCriteoOptions criteo_;
  ModelOptions model_;
  PlanOptions plan_;
  std::vector<std::string> paths_;
  CheckpointExport export_;
  ProfileOptions profile_;
  RegimeOptions regime_;
  LogsOptions logs_;
  ScaleOptions scale_;
  TopOptions top_;
  std::string shell_;
  bool offline_ = false;
  std::vector<std::string> cluster_;
  std::string task_;
  std::string help_topic_;
  std::string help_field_;
};

}  // namespace

int RunSynctl(int argc, char** argv, const SynctlEnvironment& environment) {
  ExplainUncaughtExceptions("synctl");
  return CommandLine(environment).Run(argc, argv);
}

}  // namespace syncline::ctl
