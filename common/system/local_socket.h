#ifndef SYNCLINE_COMMON_SYSTEM_LOCAL_SOCKET_H_
#define SYNCLINE_COMMON_SYSTEM_LOCAL_SOCKET_H_

// File descriptors between processes of one host, over Unix sockets with
// abstract names: no file that could be left behind, and a name that only
// processes of the same network namespace can reach. Nothing here blocks.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/system/file_descriptor.h"

namespace syncline {

// Distinguishes boots of a kernel, hence hosts: "0f3a...", 36 characters; empty
// if the system does not say.
std::string BootId();

// Takes a name that one process of this host can have at a time (of the same
// network namespace), for as long as the descriptor is open: it ends with the
// process. `name`: 1..100 bytes. Errors: AlreadyExists: another process has it;
// InvalidArgument: too long; Unavailable: the system's.
absl::StatusOr<FileDescriptor> ClaimLocalName(absl::string_view name);

struct LocalListener {
  FileDescriptor socket;
  std::string name;  // random
};
absl::StatusOr<LocalListener> ListenLocally();

// Connects to `name` and sends `text` (1..128 bytes) with `descriptor`. The
// listener may accept later; the connection shows it when this process has
// ended. Errors: Unavailable: no such listener here, its queue is full, or it
// is another user's: memory is shared with processes of the same user alone.
absl::StatusOr<FileDescriptor> SendDescriptor(absl::string_view name,
                                              absl::string_view text,
                                              const FileDescriptor& descriptor);

// The next connection of a process of the same user, if one is among the first
// few hundred that wait; those of others before it are closed.
std::optional<FileDescriptor> AcceptLocally(const FileDescriptor& listener);

struct ReceivedDescriptor {
  std::string text;
  FileDescriptor descriptor;
};
// Receives the text and the descriptor of SendDescriptor. Errors: Unavailable:
// nothing has come yet; InvalidArgument: something else has come.
absl::StatusOr<ReceivedDescriptor> ReceiveDescriptor(
    const FileDescriptor& connection);

// True if the other end has closed the connection.
bool IsClosedByPeer(const FileDescriptor& connection);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_SYSTEM_LOCAL_SOCKET_H_
