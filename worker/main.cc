// syncline-worker: one worker, chief or evaluator. It hosts the scheduler where
// TF_CONFIG makes it so, and where it is alone a ps too; each of them joins the
// cluster like any other member, over loopback.

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/exit_codes.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/daemon/daemon.h"
#include "common/system/log.h"
#include "kernels/threads.h"
#include "scheduler/hosted_scheduler.h"
#include "server/service/ps_member.h"
#include "worker/collectives/peer_rendezvous.h"
#include "worker/device/cuda_gpus.h"
#include "worker/device/gpu_monitor.h"
#include "worker/device/worker_device.h"
#include "worker/training/worker.h"

namespace syncline::worker {
namespace {

// Opens the GPU, if there is to be one, and says what jobs compute on.
absl::StatusOr<WorkerDevice> OpenDevice(const DaemonOptions& options,
                                        Daemon* daemon) {
  const auto convolutions = options.convolutions == "own"
                                ? CudaConvolutions::kOwn
                                : CudaConvolutions::kCudnn;
  SYNCLINE_ASSIGN_OR_RETURN(
      WorkerDevice device,
      OpenWorkerDevice(options.device, CudaGpus(convolutions)));
  if (device.gpu == nullptr) {
    LogInfo("jobs compute on the processors").Field("why", device.why_no_gpu);
    return device;
  }
  const Device::Description description = device.gpu->description();
  LogInfo("jobs compute on a GPU")
      .Field("device", device.gpu->name())
      .Field("model", description.model)
      .Field("memory_bytes", description.memory_bytes)
      .Field("convolutions", description.convolutions);
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
// jobs along.
void OnGpuLost(const DaemonOptions& options, const absl::Status& why,
               Daemon* daemon, bool* starts_anew) {
  if (options.hosts_scheduler) {
    LogError("this worker can compute no further job until it is restarted")
        .Field("why_not_now", "it hosts the scheduler")
        .Status(why);
    return;
  }
  *starts_anew = true;
  daemon->RequestExit(kExitRetryable, "the GPU has failed: it starts anew");
}

absl::StatusOr<std::unique_ptr<worker::Worker>> CreateWorker(
    const DaemonOptions& options, const WorkerDevice& device,
    uint64_t incarnation, PeersService* peers, Daemon* daemon, MemberLink* link,
    bool* starts_anew) {
  worker::Worker::Options worker;
  worker.scheduler_address = daemon->scheduler_address();
  worker.data_root = {options.data_root, options.data_root_is_bound};
  SYNCLINE_ASSIGN_OR_RETURN(worker.work_dir, daemon->WorkDir());
  worker.results_root = daemon->WorkRoot();
  worker.threads = options.threads;
  worker.gpu = device.gpu.get();
  worker.why_no_gpu = device.why_no_gpu;
  worker.on_gpu_lost = [=, &options](const absl::Status& why) {
    OnGpuLost(options, why, daemon, starts_anew);
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

// `starts_anew` is set if the process is to execute itself anew then.
absl::StatusOr<int> RunWorker(const DaemonOptions& options, Daemon* daemon,
                              bool* starts_anew) {
  SYNCLINE_ASSIGN_OR_RETURN(const WorkerDevice device,
                            OpenDevice(options, daemon));
  const std::unique_ptr<GpuMonitor> monitor =
      device.gpu != nullptr ? GpuMonitor::Start(*device.gpu, daemon->metrics())
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
                                         daemon, link, starts_anew));
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
  bool starts_anew = false;
  const int code = syncline::DaemonMain(
      syncline::DaemonKind::kWorker, argc, argv,
      [&](const syncline::DaemonOptions& options, syncline::Daemon* daemon) {
        return syncline::worker::RunWorker(options, daemon, &starts_anew);
      },
      &syncline::scheduler::HostedScheduler::Validate);
  if (starts_anew) syncline::ExecuteAnew(argv);
  return code;
}
