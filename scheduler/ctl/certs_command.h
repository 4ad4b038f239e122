#ifndef SYNCLINE_SCHEDULER_CTL_CERTS_COMMAND_H_
#define SYNCLINE_SCHEDULER_CTL_CERTS_COMMAND_H_

#include <string>
#include <vector>

#include "scheduler/ctl/text/console.h"

namespace syncline::ctl {

struct CertsOptions {
  std::string dir;
  std::string cluster = "syncline";
  int days = 90;
  int authority_days = 3650;
  // "worker/3", "chief/0+scheduler". Empty: one for any task of each role.
  std::vector<std::string> identities;
};

// `synctl certs create`: a certificate authority in `dir` (ca.crt, ca.key),
// unless it is there, and a certificate and key that it signs for each identity
// (worker-3.crt, worker-3.key). Files of these names are replaced, which
// renews them. Keys are readable by the owner alone. Returns the exit code.
int RunCertsCreate(const CertsOptions& options, const Console& console);

// `synctl certs show FILE`. Returns the exit code.
int RunCertsShow(const std::string& file, const Console& console);

}  // namespace syncline::ctl

#endif  // SYNCLINE_SCHEDULER_CTL_CERTS_COMMAND_H_
