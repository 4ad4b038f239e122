#ifndef SYNCLINE_SCHEDULER_SERVICE_STATUS_PAGES_H_
#define SYNCLINE_SCHEDULER_SERVICE_STATUS_PAGES_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/daemon/http_server.h"
#include "scheduler/service/file_stream.h"
#include "scheduler/service/page_access.h"

namespace syncline::scheduler {

// The scheduler's HTTP pages:
//
//   /                    the status page: one document, which then asks
//   /status.json         for jobs, queue and members,
//   /jobs/ID.json        for one job,
//   /jobs/ID/logs.json   for the last lines of a task's log (?task=worker:1)
//   /jobs.json           jobs as `synctl list` has them, page after page
//   /sd                  the targets of Prometheus' HTTP service discovery
//
// The document is the same for everyone and names nothing of the cluster. The
// others, but /sd, are for whom page_access.h says. Thread-safe.
class StatusPages {
 public:
  explicit StatusPages(const ServiceContext& context);

  // As Scheduler::SetAddress.
  void SetAddress(const std::string& address, const std::string& http_address)
      ABSL_LOCKS_EXCLUDED(mu_);

  HttpServer::Pages Pages();

 private:
  using Request = HttpServer::Request;
  using Response = HttpServer::Response;

  Response Document() const;
  Response Status(const PageViewer& viewer);
  Response OfJob(const Request& request, const PageViewer& viewer);
  Response JobPage(const std::string& job_id, const PageViewer& viewer);
  Response LogPage(const std::string& job_id, absl::string_view query,
                   const PageViewer& viewer);
  // A line in the audit log, once in a minute for a viewer, job and outcome.
  void AddLogRecord(const PageViewer& viewer, const std::string& job_id,
                    const absl::Status& outcome) ABSL_LOCKS_EXCLUDED(mu_);
  Response List(absl::string_view query, const PageViewer& viewer);
  Response Targets();
  // A handler for whom page_access.h lets pass.
  HttpServer::Handler Guarded(
      std::function<Response(const Request&, const PageViewer&)> page);

  const ServiceContext context_;
  const std::string document_;
  const std::string policy_;  // what the document may load and run
  Mutex mu_;
  std::string address_ ABSL_GUARDED_BY(mu_);
  std::string http_address_ ABSL_GUARDED_BY(mu_);
  // The reads that AddLogRecord has written, each with its time.
  std::map<std::string, absl::Time> log_reads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline::scheduler

#endif  // SYNCLINE_SCHEDULER_SERVICE_STATUS_PAGES_H_
