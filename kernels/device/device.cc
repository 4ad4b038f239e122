#include "kernels/device/device.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace syncline {

absl::Status Stream::BeginGraph() {
  return absl::UnimplementedError(
      absl::StrCat(device().name(), " keeps no work as graphs"));
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> Stream::EndGraph() {
  return BeginGraph();
}

absl::StatusOr<DeviceMemory> Upload(Device& device, const void* values,
                                    size_t bytes) {
  SYNCLINE_ASSIGN_OR_RETURN(DeviceMemory memory, device.Allocate(bytes));
  SYNCLINE_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                            device.MakeStream());
  stream->CopyToDevice(memory.data(), values, bytes);
  SYNCLINE_RETURN_IF_ERROR(stream->Synchronize());
  return memory;
}

}  // namespace syncline
