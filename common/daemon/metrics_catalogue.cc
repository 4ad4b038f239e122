#include "common/daemon/metrics_catalogue.h"

namespace syncline {
namespace {

constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;
constexpr MetricType kHistogram = MetricType::kHistogram;

constexpr MetricInfo kCatalogue[] = {
    // Every process.
    {"syncline_build_info", kGauge, "", "program, version",
     "1; the version is in the label."},
    {"process_resident_memory_bytes", kGauge, "bytes", "",
     "Memory of this process that is in RAM."},
    {"process_virtual_memory_bytes", kGauge, "bytes", "",
     "Address space of this process."},
    {"process_cpu_seconds_total", kCounter, "seconds", "",
     "Processor time of this process, user and system."},
    {"process_open_fds", kGauge, "files", "", "Open file descriptors."},
    {"process_max_fds", kGauge, "files", "",
     "File descriptors that may be open."},
    {"process_threads", kGauge, "threads", "", "Threads of this process."},
    {"process_start_time_seconds", kGauge, "seconds", "",
     "When this process started, since 1970."},
    {"syncline_process_available_memory_bytes", kGauge, "bytes", "",
     "Memory that this process may still take: the least of the "
     "machine's, its control groups' and its own limits."},
    {"syncline_tls_certificate_expiry_seconds", kGauge, "seconds", "",
     "When this process's certificate ends, since 1970; not there without "
     "TLS."},
    {"syncline_unusable_files", kGauge, "files", "file",
     "1: the file cannot be used as it is now, and what it said before stays "
     "in force: tokens, keys (of an issuer), revocations, quotas; 0: it can; "
     "not there for a file that this process was not given."},
    // Jobs, at the scheduler.
    {"syncline_job_state_seconds", kGauge, "seconds", "job, state",
     "How long the job has been in the state that it is in: queued, "
     "preparing or running."},
    {"syncline_job_clock", kGauge, "clocks", "job",
     "Clocks that the slowest worker has closed."},
    {"syncline_job_planned_clocks", kGauge, "clocks", "job",
     "Clocks of the whole job; 0 before they are known."},
    {"syncline_job_idle_seconds", kGauge, "seconds", "job",
     "Of a running job: since its slowest worker last closed a clock, an "
     "evaluation came, or what it waits for changed."},
    {"syncline_job_loss", kGauge, "", "job",
     "Mean training loss over the workers, as last reported."},
    {"syncline_job_samples_per_second", kGauge, "samples/second", "job",
     "Samples trained on, over the workers' last report interval."},
    {"syncline_job_skipped_clocks_total", kCounter, "clocks", "job",
     "Clocks at which nothing was applied because a gradient was not "
     "finite."},
    {"syncline_job_regime", kGauge, "", "job, mode",
     "1 for the mode in which the job trains: sync, bounded_staleness, "
     "async, sync_with_backups, sync_with_timeout, local."},
    {"syncline_job_regime_changes_total", kCounter, "changes", "job",
     "Changes of the regime while the job ran, without those that came to "
     "nothing."},
    {"syncline_job_checkpoint_age_seconds", kGauge, "seconds", "job",
     "Of a running job with checkpoints: since its newest one was whole, or, "
     "if that is later, since it runs or this scheduler has started."},
    {"syncline_job_checkpoint_period_seconds", kGauge, "seconds", "job",
     "checkpoint.every_seconds of a running job; not there where checkpoints "
     "go by clocks alone."},
    {"syncline_job_attempts_total", kCounter, "attempts", "job",
     "How often the job was given to members."},
    {"syncline_job_evaluation_lag_clocks", kGauge, "clocks", "job",
     "Of a job with test data: clocks that the slowest worker has closed "
     "since the latest evaluation's."},
    {"syncline_job_evaluation_loss", kGauge, "", "job",
     "Loss of the latest evaluation."},
    {"syncline_job_worker_clock", kGauge, "clocks", "job, rank",
     "Clocks that the worker has closed."},
    {"syncline_job_worker_samples_per_second", kGauge, "samples/second",
     "job, rank",
     "Samples that the worker trained on, over its last report interval."},
    {"syncline_job_worker_training_seconds_total", kCounter, "seconds",
     "job, phase, rank",
     "Time of the worker's training thread, by what it did, as "
     "syncline_worker_training_seconds_total."},
    {"syncline_job_worker_compute_seconds_total", kCounter, "seconds",
     "job, part, rank",
     "What the worker's computation consists of, as "
     "syncline_worker_compute_seconds_total."},
    // The scheduler.
    {"syncline_scheduler_members", kGauge, "members", "task",
     "Live members by task type."},
    {"syncline_scheduler_members_engaged", kGauge, "members", "",
     "Members that work for a job."},
    {"syncline_scheduler_members_lost_total", kCounter, "members", "cause",
     "Members that are gone: left (its stream ended while it had no job, "
     "which an idle process that is killed looks like, too), died (its "
     "stream ended during a job, and it does not answer), silent (for "
     "longer than the lease), not_back (it answers, but did not register "
     "again), not_released (it did not let go of a job in time), replaced "
     "(it opened another session), revoked (its certificate was revoked)."},
    {"syncline_scheduler_sessions_ended_total", kCounter, "members", "",
     "Daemons that left, were lost, or lost their lease."},
    {"syncline_scheduler_jobs", kGauge, "jobs", "state",
     "Jobs that are not over, by state."},
    {"syncline_scheduler_jobs_queued", kGauge, "jobs", "",
     "Jobs that wait for free members."},
    {"syncline_scheduler_queue_oldest_seconds", kGauge, "seconds", "",
     "How long the job that has waited longest has been queued; 0: none "
     "waits."},
    {"syncline_scheduler_records_unreadable", kGauge, "records", "",
     "Job records on disk that could not be read at the start."},
    {"syncline_scheduler_submits_total", kCounter, "jobs", "outcome",
     "Submitted jobs by outcome. A repeated submission is none."},
    {"syncline_scheduler_rpcs_total", kCounter, "calls", "code, rpc",
     "Calls that have ended, by method and gRPC's code."},
    {"syncline_scheduler_state_write_failures_total", kCounter, "records", "",
     "Job records that could not be written at once."},
    {"syncline_scheduler_job_transitions_total", kCounter, "jobs", "state",
     "Jobs that reached a state."},
    {"syncline_scheduler_loop_delay_seconds", kHistogram, "seconds", "",
     "From an event's arrival until the control loop has handled it, its "
     "writes to disk included."},
    {"syncline_scheduler_disk_free_bytes", kGauge, "bytes", "",
     "Free disk where the scheduler keeps records, models and results."},
    {"syncline_scheduler_disk_bytes", kGauge, "bytes", "",
     "Size of that disk."},
    // The ps: calls.
    {"syncline_ps_requests_total", kCounter, "calls", "code, rpc",
     "Answered calls."},
    {"syncline_ps_request_duration_seconds", kHistogram, "seconds", "rpc",
     "Time from a call's arrival to its answer, parking included."},
    {"syncline_ps_received_bytes_total", kCounter, "bytes", "",
     "Payload bytes received."},
    {"syncline_ps_sent_bytes_total", kCounter, "bytes", "",
     "Payload bytes sent."},
    {"syncline_ps_shared_memory_payload_bytes_total", kCounter, "bytes",
     "direction",
     "Payload bytes, of those received and sent, that went through shared "
     "memory."},
    {"syncline_ps_parked_calls", kGauge, "calls", "kind",
     "Calls that wait for another caller."},
    {"syncline_ps_queued_steps", kGauge, "steps", "",
     "Steps that wait in the lanes' queues."},
    {"syncline_ps_lanes", kGauge, "lanes", "",
     "Lanes: threads that hold parameters and apply gradients."},
    // The ps: memory.
    {"syncline_ps_in_flight_bytes", kGauge, "bytes", "",
     "Bytes of requests and responses held."},
    {"syncline_ps_in_flight_limit_bytes", kGauge, "bytes", "",
     "Calls beyond this limit are refused until others end."},
    {"syncline_ps_shared_memory_bytes", kGauge, "bytes", "",
     "Bytes of memory of workers on this host that are mapped."},
    {"syncline_ps_shared_memory_limit_bytes", kGauge, "bytes", "",
     "Above this workers are told to use the network."},
    {"syncline_ps_parameter_bytes", kGauge, "bytes", "",
     "Bytes of parameter values held."},
    {"syncline_ps_slot_bytes", kGauge, "bytes", "",
     "Bytes of optimizer state held."},
    {"syncline_ps_fold_bytes", kGauge, "bytes", "",
     "Bytes of gradients held until other workers' arrive."},
    {"syncline_ps_spill_disk_free_bytes", kGauge, "bytes", "",
     "Free disk where rows of tables are spilled to; only while a job has "
     "tables that may spill."},
    // The ps: jobs.
    {"syncline_ps_jobs", kGauge, "jobs", "", "Open jobs."},
    {"syncline_ps_clock_spread_clocks", kGauge, "clocks", "",
     "Clocks between the fastest and the slowest active worker, largest "
     "over jobs."},
    {"syncline_ps_job_clock", kGauge, "clocks", "job",
     "Clocks that the slowest active worker has closed here."},
    {"syncline_ps_job_clock_spread_clocks", kGauge, "clocks", "job",
     "Clocks between the fastest and the slowest active worker."},
    {"syncline_ps_job_staleness_bound_clocks", kGauge, "clocks", "job",
     "So many clocks a worker may be ahead of the slowest one before it "
     "waits, in the clock that the shard takes now: 0 in SYNC; no series "
     "in ASYNC."},
    {"syncline_ps_blame_seconds_total", kCounter, "seconds", "job, rank",
     "Time for which this worker alone held up others: all others had "
     "closed the clock (SYNC), or another waited at the bound and this "
     "one was the only slowest. The wait that goes on counts. Of groups "
     "of workers here and below: by the number of the group."},
    {"syncline_ps_blame_clocks_total", kCounter, "clocks", "job, rank",
     "Clocks at which this worker came last and held up others."},
    {"syncline_ps_left_behind_clocks_total", kCounter, "clocks", "job, rank",
     "Clocks that were applied without this worker (SYNC_WITH_BACKUPS, "
     "SYNC_WITH_TIMEOUT)."},
    {"syncline_ps_dropped_samples_total", kCounter, "samples", "job, rank",
     "Samples of gradients that this worker has sent for such clocks, and "
     "that were dropped."},
    {"syncline_ps_duplicate_blocks_total", kCounter, "blocks", "",
     "Blocks that were pushed again and not applied again."},
    {"syncline_ps_abandoned_cuts_total", kCounter, "cuts", "",
     "Cuts that were held for too long and given up."},
    {"syncline_ps_skipped_clocks_total", kCounter, "clocks", "",
     "Clocks at which nothing was applied because a gradient was not "
     "finite; pushes of a worker, where workers do not wait for each "
     "other."},
    {"syncline_ps_checkpoints_total", kCounter, "parts", "result",
     "Parts of checkpoints, a shard's each, that were written, or failed."},
    {"syncline_ps_checkpoint_bytes_total", kCounter, "bytes", "",
     "Bytes of the parts that were written."},
    {"syncline_ps_checkpoint_seconds_total", kCounter, "seconds", "",
     "Time from a checkpoint's cut until its part was on disk."},
    {"syncline_ps_checkpoint_copies_total", kCounter, "blocks", "",
     "Blocks copied because they were pushed before they were written."},
    {"syncline_ps_checkpoint_waits_total", kCounter, "pushes", "",
     "Pushes that waited for a checkpoint's disk."},
    {"syncline_ps_checkpoint_wait_seconds_total", kCounter, "seconds", "for",
     "Time that lanes stood still for a checkpoint: until a block found room "
     "for its copy, until the rows of a table were written."},
    {"syncline_ps_non_finite_total", kCounter, "gradients", "job, rank",
     "Blocks and rows of this worker's gradients that were not finite."},
    // The ps: tables.
    {"syncline_ps_table_rows", kGauge, "rows", "job, table, tier",
     "Rows of the table on this ps."},
    {"syncline_ps_table_bytes", kGauge, "bytes", "job, table, tier",
     "Bytes that the table takes on this ps."},
    {"syncline_ps_table_limit_bytes", kGauge, "bytes", "job, table, tier",
     "Bytes that the table may take on this ps."},
    {"syncline_ps_table_pulled_rows_total", kCounter, "rows",
     "from, job, table", "Pulled rows by where they were found."},
    {"syncline_ps_table_pushed_rows_total", kCounter, "rows", "job, table",
     "Rows that were pushed."},
    {"syncline_ps_table_refused_rows_total", kCounter, "rows",
     "job, reason, table", "Pushed rows without effect, by cause."},
    {"syncline_ps_table_expired_rows_total", kCounter, "rows",
     "job, reason, table", "Rows that went, by cause."},
    {"syncline_ps_table_spilled_rows_total", kCounter, "rows", "job, table",
     "Rows that were written from memory to disk."},
    {"syncline_ps_table_hottest_pushes", kGauge, "pushes", "job, table",
     "Pushes of the table's most frequent key, at most."},
    {"syncline_ps_table_hottest_refused_pushes", kGauge, "pushes", "job, table",
     "Pushes without effect of the hot key that had most of them, at "
     "most."},
    // Workers and evaluators: training.
    {"syncline_worker_steps_total", kCounter, "steps", "",
     "Training steps closed."},
    {"syncline_worker_samples_total", kCounter, "samples", "",
     "Samples trained on."},
    {"syncline_worker_input_values_total", kCounter, "numbers", "content",
     "Numbers fed to training steps, by content: data, or padding of "
     "lists that are shorter than the model takes or than their batch's "
     "bucket."},
    {"syncline_worker_training_seconds_total", kCounter, "seconds", "phase",
     "Time of the training thread, by what it did: data (waiting for a "
     "batch), compute (forward, backward, own updates), push (until its "
     "gradients "
     "had left), wait (until the servers let it read: for other workers), "
     "pull (until the values were here)."},
    {"syncline_worker_compute_seconds_total", kCounter, "seconds", "part",
     "Time of training steps' computation, by part: forward (with the loss), "
     "backward, update (the worker's own optimizer steps, in LOCAL). An "
     "estimate by the passes' shares in some of the steps."},
    {"syncline_worker_step_seconds", kHistogram, "seconds", "",
     "Duration of a training step."},
    {"syncline_worker_loss_scale", kGauge, "", "",
     "Scale of the loss in the latest step with precision FLOAT16; 0 "
     "before the first one."},
    {"syncline_worker_overflowed_steps_total", kCounter, "steps", "",
     "Training steps that had no effect, or are dealt with as non_finite "
     "says where the scale is fixed, because a scaled gradient was not "
     "finite; in SYNC of any worker."},
    {"syncline_worker_late_gradients_total", kCounter, "gradients", "",
     "Gradients that came too late for their clock, and were applied at the "
     "open one instead (consistency.late SCALE, COMPENSATE)."},
    {"syncline_worker_jobs", kGauge, "jobs", "",
     "Jobs this process is training, or evaluating as their evaluator, 0 "
     "or 1."},
    {"syncline_worker_job_clock", kGauge, "clocks", "job, rank",
     "Clocks of the running job that this worker has closed."},
    {"syncline_worker_job_planned_clocks", kGauge, "clocks", "job, rank",
     "Clocks of the whole running job."},
    {"syncline_worker_job_loss", kGauge, "", "job, rank",
     "Training loss of this worker's latest step with a sample in it."},
    {"syncline_worker_job_dense_bytes", kGauge, "bytes", "as, job, rank, what",
     "Payload of dense gradients or values (what) of this worker's attempt, as "
     "they were sent, and as they would have been in float32 (as)."},
    {"syncline_worker_job_plan_bytes", kGauge, "bytes", "job, part, rank",
     "Memory that the plan of the job's step takes where it computes: "
     "arena (for activations and their gradients), rest (values and "
     "gradients of parameters)."},
    {"syncline_worker_evaluated_samples_total", kCounter, "samples", "",
     "Samples evaluated."},
    {"syncline_worker_evaluation_seconds_total", kCounter, "seconds", "",
     "Time that evaluations have taken."},
    // Workers and evaluators: their ps.
    {"syncline_worker_pushed_bytes_total", kCounter, "bytes", "",
     "Gradient bytes handed to the network, without repetitions."},
    {"syncline_worker_pulled_bytes_total", kCounter, "bytes", "",
     "Parameter bytes received."},
    {"syncline_worker_ps_retries_total", kCounter, "calls", "",
     "Calls to a ps that were sent again."},
    {"syncline_worker_ps_held_back_total", kCounter, "calls", "",
     "Calls that a ps had no memory for, held back and sent again."},
    {"syncline_worker_row_cache_lookups_total", kCounter, "rows", "result",
     "Rows of tables looked for in the worker's cache, by result: hit, "
     "miss (then pulled)."},
    {"syncline_worker_non_finite_total", kCounter, "gradients", "",
     "Gradients of this worker, or blocks and rows of them, that were not "
     "finite and have no effect."},
    {"syncline_worker_shared_memory_bytes_total", kCounter, "bytes",
     "direction",
     "Payload bytes, of those pushed and pulled, that went through memory "
     "shared with a ps on this host."},
    {"syncline_worker_shared_memory_links", kGauge, "links", "",
     "Ps of the running job that share memory with it."},
    {"syncline_worker_shared_memory_fallbacks_total", kCounter, "events",
     "reason",
     "Why the network was used, once per ps, or per call where the memory "
     "was full."},
    // Workers and evaluators: their GPU.
    {"syncline_worker_gpu_utilization_ratio", kGauge, "ratio", "",
     "Share of the last second in which a kernel ran on this worker's "
     "GPU, of any process. 0 to 1."},
    {"syncline_worker_gpu_memory_used_bytes", kGauge, "bytes", "",
     "Memory of this worker's GPU that is taken, by all processes."},
    {"syncline_worker_gpu_memory_bytes", kGauge, "bytes", "",
     "Memory of this worker's GPU."},
    {"syncline_worker_gpu_copied_bytes_total", kCounter, "bytes", "direction",
     "Bytes copied between this process and its GPU: to_device, to_host. "
     "Not those that stay on the GPU."},
    {"syncline_worker_gpu_copy_seconds_total", kCounter, "seconds", "direction",
     "Time of the GPU's queue for these copies: an estimate by those that are "
     "timed, in one step of 17."},
    {"syncline_worker_gpu_read_failures_total", kCounter, "reads", "",
     "Reads of the GPU's state that failed: it has fallen off its bus, or "
     "its driver is at fault."},
};

}  // namespace

absl::Span<const MetricInfo> MetricsCatalogue() { return kCatalogue; }

}  // namespace syncline
