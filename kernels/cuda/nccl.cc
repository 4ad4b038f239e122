#include "kernels/cuda/nccl.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline::cuda {
namespace {

constexpr int kMajorVersion = 2;
// The first whose communicators end with `abort` while they begin.
constexpr int kMinorVersionMin = 18;

constexpr char kHowToGetIt[] =
    "; install NCCL 2.18 or later, or name its folder in LD_LIBRARY_PATH";

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nccl>> Nccl::Load(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL 2, CUDA's library of reductions among GPUs, is not on this "
        "machine: ",
        dlerror(), kHowToGetIt));
  }
  std::string missing;
  const auto find = [&](const char* name, auto& to) {
    void* const address = dlsym(library, name);
    if (address == nullptr && missing.empty()) missing = name;
    to = reinterpret_cast<std::decay_t<decltype(to)>>(address);
  };
  NcclFunctions f;
  find("ncclGetVersion", f.version);
  find("ncclGetErrorString", f.error_string);
  find("ncclGetLastError", f.last_error);
  find("ncclGetUniqueId", f.make_id);
  find("ncclCommInitRankConfig", f.init);
  find("ncclCommFinalize", f.finalize);
  find("ncclCommDestroy", f.destroy);
  find("ncclCommAbort", f.abort);
  find("ncclCommGetAsyncError", f.async_error);
  find("ncclAllReduce", f.all_reduce);
  find("ncclReduceScatter", f.reduce_scatter);
  find("ncclAllGather", f.all_gather);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " has no ", missing, kHowToGetIt));
  }
  return Create(f, file);
}

absl::StatusOr<std::unique_ptr<Nccl>> Nccl::Create(
    const NcclFunctions& functions, absl::string_view file) {
  int version = 0;
  const NcclResult asked = functions.version(&version);
  if (asked != kNcclSuccess) {
    return absl::FailedPreconditionError(absl::StrCat(
        file, " does not say its version: ", functions.error_string(asked),
        kHowToGetIt));
  }
  const std::string name = absl::StrCat("NCCL ", NcclVersionText(version));
  if (version / 10000 != kMajorVersion ||
      version / 100 % 100 < kMinorVersionMin) {
    return absl::FailedPreconditionError(
        absl::StrCat(file, " is ", name, ", but this program knows 2.",
                     kMinorVersionMin, " and later ones of 2", kHowToGetIt));
  }
  return std::unique_ptr<Nccl>(new Nccl(functions, name));
}

absl::Status Nccl::StatusOf(NcclResult result, absl::string_view what,
                            NcclCommunicator communicator) const {
  if (result == kNcclSuccess) return absl::OkStatus();
  const char* const details =
      communicator == nullptr ? "" : functions_.last_error(communicator);
  const bool is_of_others =
      result == kNcclRemoteError || result == kNcclSystemError;
  return absl::Status(
      is_of_others ? absl::StatusCode::kUnavailable
                   : absl::StatusCode::kInternal,
      absl::StrCat(name_, ": ", what, ": ", functions_.error_string(result),
                   details == nullptr || details[0] == 0 ? "" : ": ",
                   details == nullptr ? "" : details));
}

absl::StatusOr<NcclId> Nccl::MakeId() const {
  NcclId id;
  SYNCLINE_RETURN_IF_ERROR(
      StatusOf(functions_.make_id(&id), "make the id of a group"));
  return id;
}

}  // namespace syncline::cuda
