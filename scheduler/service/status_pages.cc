#include "scheduler/service/status_pages.h"

#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/json_text.h"
#include "common/base/version.h"
#include "common/rpc/transport_security.h"
#include "common/rpc/user_calls.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "scheduler/core/cluster/log_sources.h"
#include "scheduler/core/cluster/metrics_targets.h"
#include "scheduler/core/cluster/status_json.h"
#include "scheduler/core/cluster/tenant_rules.h"
#include "scheduler/core/describe.h"
#include "scheduler/service/jobs_service.h"
#include "scheduler/service/log_relay.h"

namespace syncline::scheduler {

// scheduler/page/, embedded.
extern const char kStatusHtml[];
extern const unsigned long kStatusHtmlSize;
extern const char kStatusCss[];
extern const unsigned long kStatusCssSize;
extern const char kStatusJs[];
extern const unsigned long kStatusJsSize;

namespace {

constexpr size_t kEndedJobsMax = 50;
constexpr size_t kJobsMax = 500;
constexpr uint32_t kTailLines = 200;
// Readings of logs within this time are one line in the audit log.
constexpr absl::Duration kRecordPeriod = absl::Minutes(1);
constexpr size_t kRecordsMax = 4096;

std::string Css() { return std::string(kStatusCss, kStatusCssSize); }
std::string Js() { return std::string(kStatusJs, kStatusJsSize); }

// Behind the start tag is exactly the text that the policy has the hash of.
std::string Compose() {
  return absl::StrReplaceAll(
      absl::string_view(kStatusHtml, kStatusHtmlSize),
      {{"<style></style>", absl::StrCat("<style>", Css(), "</style>")},
       {"<script></script>", absl::StrCat("<script>", Js(), "</script>")}});
}

std::string HashSource(const std::string& text) {
  return absl::StrCat(
      "'sha256-", absl::Base64Escape(absl::HexStringToBytes(HashToken(text))),
      "'");
}

// Nothing from elsewhere is loaded, and no other script runs: not one that a
// job's name would bring along if a text got among the tags.
std::string Policy() {
  return absl::StrCat("default-src 'none'; connect-src 'self'; style-src ",
                      HashSource(Css()), "; script-src ", HashSource(Js()),
                      "; img-src data:; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

HttpServer::Response Json(std::string text) {
  HttpServer::Response response;
  response.content_type = "application/json";
  response.body = std::move(text);
  return response;
}

// A list has only the names of specs. The other fields of a spec would show
// zeros that the user did not write.
void KeepNamesOfSpecs(google::protobuf::Struct* page) {
  auto* const jobs = (*page->mutable_fields())["jobs"].mutable_list_value();
  for (auto& job : *jobs->mutable_values()) {
    auto* const fields = job.mutable_struct_value()->mutable_fields();
    auto* const spec = (*fields)["spec"].mutable_struct_value();
    google::protobuf::Value name = (*spec->mutable_fields())["name"];
    spec->clear_fields();
    (*spec->mutable_fields())["name"] = std::move(name);
  }
}

// "worker:1" or "worker%3A1" behind "task="; nothing: all tasks.
absl::StatusOr<std::optional<Task>> TaskOf(absl::string_view query) {
  if (query.empty()) return std::nullopt;
  if (!absl::ConsumePrefix(&query, "task=")) {
    return absl::InvalidArgumentError("only task= can be asked for");
  }
  const std::string name = absl::StrReplaceAll(query, {{"%3A", ":"}});
  for (const TaskType type : {CHIEF, WORKER, PS, EVALUATOR}) {
    absl::string_view index = name;
    uint32_t number = 0;
    if (absl::ConsumePrefix(&index, absl::StrCat(TaskTypeName(type), ":")) &&
        absl::SimpleAtoi(index, &number)) {
      Task task;
      task.set_type(type);
      task.set_index(number);
      return task;
    }
  }
  return absl::InvalidArgumentError("task: not such as worker:1");
}

}  // namespace

StatusPages::StatusPages(const ServiceContext& context)
    : context_(context), document_(Compose()), policy_(Policy()) {}

void StatusPages::SetAddress(const std::string& address,
                             const std::string& http_address) {
  MutexLock lock(&mu_);
  address_ = address;
  http_address_ = http_address;
}

HttpServer::Pages StatusPages::Pages() {
  return {{"/", [this](const Request&) { return Document(); }},
          {"/status.json",
           Guarded([this](const Request&, const PageViewer& viewer) {
             return Status(viewer);
           })},
          {"/jobs/",
           Guarded([this](const Request& request, const PageViewer& viewer) {
             return OfJob(request, viewer);
           })},
          {"/jobs.json",
           Guarded([this](const Request& request, const PageViewer& viewer) {
             return List(request.query, viewer);
           })},
          {"/sd", [this](const Request&) { return Targets(); }}};
}

HttpServer::Handler StatusPages::Guarded(
    std::function<Response(const Request&, const PageViewer&)> page) {
  return [this, page = std::move(page)](const Request& request) {
    std::string served_as;
    {
      MutexLock lock(&mu_);
      served_as = http_address_;
    }
    const auto viewer =
        CheckPageViewer(request, PeopleNeedTokens() ? FindBearer : nullptr,
                        ProcessSecurity() != nullptr, served_as);
    return viewer.ok() ? page(request, *viewer) : Refusal(viewer.status());
  };
}

HttpServer::Response StatusPages::Document() const {
  return {.content_type = "text/html; charset=utf-8",
          .body = document_,
          .headers = {{"Content-Security-Policy", policy_},
                      {"Referrer-Policy", "no-referrer"}}};
}

HttpServer::Response StatusPages::Status(const PageViewer& viewer) {
  StatusData data;
  context_.loop->Read([&](const ClusterCore& core, absl::Time now) {
    data.now = now;
    data.cluster = core.Cluster(now);
    HideOthersJobs(
        [&](const std::string& job_id) {
          const auto job = core.FindJob(job_id);
          return !job.ok() || MaySee(viewer, (*job)->status());
        },
        &data.cluster);
    size_t ended = 0;
    for (const Job* job : core.Jobs()) {
      if (!MaySee(viewer, job->status())) continue;
      if (data.jobs.size() == kJobsMax ||
          (job->IsOver() && ended == kEndedJobsMax)) {
        ++data.older_jobs;
        continue;
      }
      ended += job->IsOver() ? 1 : 0;
      data.jobs.push_back(job->Status(now));
    }
  });
  data.cluster.set_version(kVersion);
  {
    MutexLock lock(&mu_);
    data.cluster.set_scheduler_address(address_);
  }
  return Json(StatusJson(data));
}

HttpServer::Response StatusPages::OfJob(const Request& request,
                                        const PageViewer& viewer) {
  absl::string_view name = request.path;
  absl::ConsumePrefix(&name, "/jobs/");
  if (absl::ConsumeSuffix(&name, "/logs.json")) {
    return LogPage(std::string(name), request.query, viewer);
  }
  if (absl::ConsumeSuffix(&name, ".json")) {
    return JobPage(std::string(name), viewer);
  }
  return Refusal(
      absl::NotFoundError("there are /jobs/ID.json and /jobs/ID/logs.json"));
}

HttpServer::Response StatusPages::JobPage(const std::string& job_id,
                                          const PageViewer& viewer) {
  JobData data;
  bool found = false;
  context_.loop->Read([&](const ClusterCore& core, absl::Time now) {
    const auto job = core.FindJob(job_id);
    found = job.ok() && MaySee(viewer, (*job)->status());
    if (!found) return;
    data.now = now;
    data.status = (*job)->Status(now);
    data.curve = {(*job)->curve().begin(), (*job)->curve().end()};
  });
  if (!found) return Refusal(absl::NotFoundError("there is no such job"));
  data.may_read_logs = viewer.reads_logs;
  return Json(JobJson(data));
}

HttpServer::Response StatusPages::LogPage(const std::string& job_id,
                                          absl::string_view query,
                                          const PageViewer& viewer) {
  if (!viewer.reads_logs) {
    return Refusal(absl::PermissionDeniedError(
        "logs are not shown here; use `synctl logs`"));
  }
  const auto job = context_.loop->Get(job_id);
  if (!job.ok() || !MaySee(viewer, *job)) {
    return Refusal(absl::NotFoundError("there is no such job"));
  }
  const auto task = TaskOf(query);
  if (!task.ok()) return Refusal(task.status());
  LogsRequest request;
  request.set_job_id(job_id);
  request.set_tail_lines(kTailLines);
  if (task->has_value()) *request.mutable_task() = **task;
  const auto parts = ReadLogTails(context_, request);
  AddLogRecord(viewer, job_id, parts.status());
  if (!parts.ok()) return Refusal(parts.status());
  std::vector<std::string> logs;
  for (const LogLines& part : *parts) {
    logs.push_back(JsonObject()
                       .Text("task", LogTaskName(part.task()))
                       .Text("text", part.text())
                       .ToString());
  }
  return Json(JsonObject().Raw("logs", JsonArray(logs)).ToString());
}

// The page asks every two seconds.
void StatusPages::AddLogRecord(const PageViewer& viewer,
                               const std::string& job_id,
                               const absl::Status& outcome) {
  const absl::Time now = MonotonicNow();
  const std::string read =
      absl::StrCat(viewer.who, "\n", job_id, "\n", outcome.raw_code());
  {
    MutexLock lock(&mu_);
    for (auto it = log_reads_.begin(); it != log_reads_.end();) {
      it = now >= it->second + kRecordPeriod ? log_reads_.erase(it)
                                             : std::next(it);
    }
    if (log_reads_.size() >= kRecordsMax) log_reads_.clear();
    if (!log_reads_.emplace(read, now).second) return;
  }
  AuditRecord record;
  record.who = viewer.who;
  record.action = "logs";
  record.job_id = job_id;
  record.outcome = outcome;
  record.detail = "the status page";
  context_.audit->Add(record, absl::Now());
}

HttpServer::Response StatusPages::List(absl::string_view query,
                                       const PageViewer& viewer) {
  ListRequest request;
  if (absl::ConsumePrefix(&query, "page_token=")) {
    request.set_page_token(std::string(query));
  }
  const auto page =
      ListJobs(*context_.loop, request,
               JobScope{.all = viewer.sees_all, .tenant = viewer.tenant});
  if (!page.ok()) return Refusal(page.status());
  google::protobuf::util::JsonPrintOptions json;
  json.preserve_proto_field_names = true;
  json.always_print_primitive_fields = true;
  std::string text;
  google::protobuf::Struct object;
  const bool printed =
      google::protobuf::util::MessageToJsonString(*page, &text, json).ok() &&
      google::protobuf::util::JsonStringToMessage(text, &object).ok();
  KeepNamesOfSpecs(&object);
  Response response = Json("");
  if (!printed ||
      !google::protobuf::util::MessageToJsonString(object, &response.body)
           .ok()) {
    response.code = 500;
  }
  return response;
}

HttpServer::Response StatusPages::Targets() {
  std::vector<Member> members;
  context_.loop->Read([&](const ClusterCore& core, absl::Time) {
    for (const Membership::Entry* entry : core.membership().All()) {
      members.push_back(entry->member);
    }
  });
  MutexLock lock(&mu_);
  return Json(MetricsTargetsJson(http_address_, members));
}

}  // namespace syncline::scheduler
