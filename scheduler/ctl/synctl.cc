#include "scheduler/ctl/synctl.h"

#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/edit_distance.h"
#include "common/base/version.h"
#include "common/daemon/number_flag.h"
#include "common/job/profile_limits.h"
#include "common/system/process_limits.h"
#include "google/protobuf/struct.pb.h"
#include "scheduler/ctl/address_check.h"
#include "scheduler/ctl/commands.h"
#include "scheduler/ctl/doctor.h"
#include "scheduler/ctl/generate_command.h"
#include "scheduler/ctl/local_command.h"
#include "scheduler/ctl/model_command.h"
#include "scheduler/ctl/plan_command.h"
#include "scheduler/ctl/profile_command.h"
#include "scheduler/ctl/text/console.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "scheduler/ctl/text/help_texts.h"
#include "scheduler/ctl/text/job_reference.h"
#include "scheduler/ctl/text/printable_stream.h"
#include "scheduler/ctl/tf_config_command.h"

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
    AddTables();
    AddProfile();
    AddLocal();
    AddGenerate();
    AddModel();
    AddPlan();
    AddClusterCommands();
    AddHelp();
  }

  int Run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
      CheckScheduler();
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

  // What is wrong, if it is a word in the place of a command; else empty.
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
    if (help_topic_.empty()) return app_.help();
    const auto named = app_.get_subcommands([this](const CLI::App* command) {
      return command->get_name() == help_topic_;
    });
    if (!named.empty()) return named.front()->help();
    return absl::NotFoundError(absl::StrCat(
        "no help on \"", help_topic_, "\"; `synctl help` lists the commands"));
  }

  static std::string DefaultScheduler() {
    return absl::StrCat(kDefaultHost, ":", kDefaultSchedulerPort);
  }
  // Its form; and that it was not named before a command which asks none.
  void CheckScheduler() const {
    const CLI::App* const used = app_.get_subcommands().front();
    const bool asks = used->get_option_no_throw("--scheduler") != nullptr;
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

  void AddJobCommands() {
    CLI::App* submit = AddRemote(
        "submit", "Send a job to the cluster", [this](const Console& console) {
          return RunSubmit(Scheduler(), submit_, console);
        });
    submit->add_option("FILE", submit_.job_file, "Job file")->required();
    AddSettings(submit, &submit_.overrides);
    submit->add_flag("--watch,-w", submit_.watch, "Follow it to its end");
    submit->add_option("--key", submit_.client_key,
                       "A name for this submission, up to 128 bytes: repeated "
                       "with the same key it finds the job of the first");
    SetFooter(submit, kSubmitFooter);

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
              local_.bounds_data = !local_.data_root.empty();
              if (local_.data_root.empty()) {
                local_.data_root = environment_.data_root;
              }
              return RunLocal(local_, console);
            });
    local->add_option("FILE", local_.job_file, "Job file")->required();
    local->add_option("--ps", local_.size.ps,
                      "Parameter servers; default: what the job asks for");
    local->add_option("--workers", local_.size.workers,
                      "Workers, the chief among them; default: likewise");
    AddSettings(local, &local_.size);
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
    plan->add_option("--tensors", plan_.tensors,
                     "Largest tensors to list; default 10");
    SetFooter(plan, kPlanFooter);
  }

  void AddClusterCommands() {
    SetFooter(AddRemote("cluster", "List the cluster's members",
                        [this](const Console& console) {
                          return RunCluster(Scheduler(), console);
                        }),
              kClusterFooter);
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
  SubmitOptions submit_;
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
  ProfileOptions profile_;
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
