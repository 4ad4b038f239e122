// syncline-worker: one worker, chief or evaluator. It hosts the scheduler where
// TF_CONFIG makes it so, and where it is alone a ps too; each of them joins the
// cluster like any other member, over loopback.

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/exit_codes.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon.h"
#include "common/system/execute_anew.h"
#include "common/system/log.h"
#include "kernels/threads.h"
#include "scheduler/hosted_scheduler.h"
#include "server/service/ps_member.h"
#include "worker/collectives/peer_rendezvous.h"
#include "worker/compute/pass_timer.h"
#include "worker/device/cuda_gpus.h"
#include "worker/device/gpu_monitor.h"
#include "worker/device/worker_device.h"
#include "worker/training/worker.h"

namespace syncline::worker {
namespace {

// In the environment of a process that executes itself anew because its GPU has
// failed: the next one is to know.
constexpr char kGpuHadFailed[] = "SYNCLINE_GPU_HAD_FAILED";

// Whether this process executes itself anew when it ends.
struct Restart {
  char** argv = nullptr;
  bool had_failed_gpu = false;  // it has done so before, for its GPU
  bool is_wanted = false;       // set before the end is requested

  // Returns if it is not wanted, or cannot be done.
  void Execute() const {
    if (!is_wanted) return;
    setenv(kGpuHadFailed, "1", /*overwrite=*/1);
    ExecuteAnew(argv);
  }
};

// Opens the GPU, if there is to be one, and says what jobs compute on.
absl::StatusOr<WorkerDevice> OpenDevice(const DaemonOptions& options,
                                        bool had_failed_gpu, Daemon* daemon) {
  const auto convolutions = options.convolutions == "own"
                                ? CudaConvolutions::kOwn
                                : CudaConvolutions::kCudnn;
  SYNCLINE_ASSIGN_OR_RETURN(
      WorkerDevice device,
      OpenWorkerDevice(options.device,
                       CudaGpus(convolutions, options.cuda_graphs == "auto")));
  if (device.gpu == nullptr) {
    if (had_failed_gpu) {
      LogWarning("the GPU that has failed is gone: jobs compute on processors")
          .Field("why", device.why_no_gpu);
    } else {
      LogInfo("jobs compute on the processors").Field("why", device.why_no_gpu);
    }
    return device;
  }
  const Device::Description description = device.gpu->description();
  LogInfo("jobs compute on a GPU")
      .Field("device", device.gpu->name())
      .Field("model", description.model)
      .Field("memory_bytes", description.memory_bytes)
      .Field("convolutions", description.convolutions)
      .Field("graphs", options.cuda_graphs);
  if (!description.why_no_convolutions.empty()) {
    LogWarning("jobs with convolutions will be refused")
        .Field("why", description.why_no_convolutions);
  }
  LogWarning("the kernels for GPUs have been tested on an emulator alone")
      .Field("what_to_do",
             "compare a short job with one on processors first: "
             "resources.device: CPU");
  if (!device.warning.empty()) {
    LogWarning("the GPU is shared").Field("what", device.warning);
  }
  Gpu gpu;
  gpu.set_name(std::string(device.gpu->name()));
  gpu.set_model(description.model);
  gpu.set_memory_bytes(description.memory_bytes);
  gpu.set_convolutions(description.convolutions);
  daemon->SetGpu(std::move(gpu));
  return device;
}

// A GPU that has failed computes nothing more for this process. One that hosts
// the scheduler goes on, without jobs of its own: it would take the cluster's
// jobs along. One whose GPU fails again before it has made a step ends: each
// job that it took would fail.
void OnGpuLost(const DaemonOptions& options, const absl::Status& why,
               bool has_worked, Daemon* daemon, Restart* restart) {
  if (options.hosts_scheduler) {
    LogError("this worker can compute no further job until it is restarted")
        .Field("why_not_now", "it hosts the scheduler")
        .Status(why);
    return;
  }
  if (restart->had_failed_gpu && !has_worked) {
    daemon->Report(Annotate(
        why,
        "the GPU has failed again, without a step between, and this worker "
        "ends: reset the GPU or restart the machine (nvidia-smi, dmesg | grep "
        "-i xid), or start the worker with another --device"));
    daemon->RequestExit(kExitFailed, "the GPU has failed again");
    return;
  }
  restart->is_wanted = true;
  daemon->RequestExit(kExitRetryable, "the GPU has failed: it starts anew");
}

// Measured algorithms are kept where --work-dir says, by GPUs alike: anybody
// may write to the folder for temporary files.
worker::ProductTuning ProductTuningOf(const DaemonOptions& options,
                                      const WorkerDevice& device) {
  worker::ProductTuning tuning;
  tuning.measures = options.product_algorithms == "measured";
  if (device.gpu == nullptr || options.work_dir.empty()) return tuning;
  std::string model = device.gpu->description().model;
  for (char& c : model) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '-';
  }
  tuning.file =
      absl::StrCat(options.work_dir, "/product-algorithms-", model, ".txt");
  return tuning;
}

absl::StatusOr<std::unique_ptr<worker::Worker>> CreateWorker(
    const DaemonOptions& options, const WorkerDevice& device,
    uint64_t incarnation, PeersService* peers, Daemon* daemon, MemberLink* link,
    Restart* restart) {
  worker::Worker::Options worker;
  worker.scheduler_address = daemon->scheduler_address();
  worker.data_root = {options.data_root, options.data_root_is_bound};
  SYNCLINE_ASSIGN_OR_RETURN(worker.work_dir, daemon->WorkDir());
  worker.results_root = daemon->WorkRoot();
  worker.threads = options.threads;
  worker.gpu = device.gpu.get();
  worker.why_no_gpu = device.why_no_gpu;
  worker.product_tuning = ProductTuningOf(options, device);
  worker.on_gpu_lost = [=, &options](const absl::Status& why, bool has_worked) {
    OnGpuLost(options, why, has_worked, daemon, restart);
  };
  worker.incarnation = incarnation;
  worker.session_secret = [link] { return link->session_secret(); };
  worker.shared_memory = options.shared_memory;
  worker.join_peers =
      MakeJoinPeers(peers, options.listen, options.shared_memory);
  worker.metrics = daemon->metrics();
  return worker::Worker::Create(
      worker, [link](DaemonMessage m) { link->Send(std::move(m)); });
}

absl::StatusOr<int> RunWorker(const DaemonOptions& options, Daemon* daemon,
                              Restart* restart) {
  // A driver may take its time for a GPU that has failed.
  daemon->SetCutOff([restart] { restart->Execute(); });
  SYNCLINE_ASSIGN_OR_RETURN(
      const WorkerDevice device,
      OpenDevice(options, restart->had_failed_gpu, daemon));
  const std::unique_ptr<GpuMonitor> monitor =
      device.gpu != nullptr ? GpuMonitor::Start(*device.gpu, daemon->metrics())
                            : nullptr;
  const std::unique_ptr<MetricsRegistry::Collecting> copies =
      device.gpu != nullptr
          ? ShowCopies(*MeterOf(*device.gpu), daemon->metrics())
          : nullptr;
  std::unique_ptr<scheduler::HostedScheduler> scheduler;
  std::unique_ptr<ps::PsMember> ps;
  MemberLink* const link = daemon->AddMember();
  const uint64_t incarnation = EntropySeed();
  if (options.hosts_scheduler) {
    SYNCLINE_ASSIGN_OR_RETURN(
        scheduler, scheduler::HostedScheduler::Create(options, daemon));
  }
  if (options.alone) {
    SYNCLINE_ASSIGN_OR_RETURN(ps, ps::PsMember::Create(options, daemon));
  }
  PeersService peers;
  daemon->builder()->RegisterService(&peers);
  SYNCLINE_ASSIGN_OR_RETURN(const std::string work_dir, daemon->WorkDir());
  daemon->AddReadiness([work_dir] {
    std::error_code error;
    return std::filesystem::is_directory(work_dir, error)
               ? absl::OkStatus()
               : absl::NotFoundError(
                     absl::StrCat("--work-dir ", work_dir, " is gone"));
  });
  SYNCLINE_RETURN_IF_ERROR(
      scheduler == nullptr
          ? daemon->Listen({"syncline.Worker"})
          : daemon->Listen(scheduler::HostedScheduler::Services(),
                           scheduler->Pages()));
  const absl::Cleanup stop_serving = [daemon] { daemon->StopServing(); };
  SYNCLINE_ASSIGN_OR_RETURN(const auto worker,
                            CreateWorker(options, device, incarnation, &peers,
                                         daemon, link, restart));
  const absl::Cleanup leave = [daemon] { daemon->Leave(); };
  if (scheduler != nullptr) scheduler->Start();
  if (ps != nullptr) ps->Join({TaskKind::kPs, 0}, /*auto_index=*/false);
  daemon->Join(link, options.task, options.auto_index, incarnation,
               [&worker](const SchedulerMessage& command) {
                 worker->OnCommand(command);
               });

  const int exit_code = daemon->AwaitExit(
      [&scheduler] { return scheduler != nullptr && scheduler->busy(); });
  daemon->Leave();
  if (ps != nullptr) ps->Drain(daemon->drain_deadline());
  if (scheduler != nullptr) {
    scheduler->Drain(exit_code, daemon->drain_deadline());
  }
  return exit_code;
}

}  // namespace
}  // namespace syncline::worker

int main(int argc, char** argv) {
  syncline::RestartWithPassiveWaiting(argv);
  syncline::worker::Restart restart = {
      .argv = argv,
      .had_failed_gpu =
          std::getenv(syncline::worker::kGpuHadFailed) != nullptr};
  unsetenv(syncline::worker::kGpuHadFailed);
  const int code = syncline::DaemonMain(
      syncline::DaemonKind::kWorker, argc, argv,
      [&](const syncline::DaemonOptions& options, syncline::Daemon* daemon) {
        return syncline::worker::RunWorker(options, daemon, &restart);
      },
      &syncline::scheduler::HostedScheduler::Validate);
  restart.Execute();
  return code;
}
