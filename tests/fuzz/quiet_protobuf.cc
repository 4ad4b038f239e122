// This file is part of each fuzz target: protobuf writes a line to standard
// error for each text that is no UTF-8, which takes longer than to read the
// message.

#include "google/protobuf/stubs/logging.h"

namespace {

[[maybe_unused]] auto* const g_before =
    google::protobuf::SetLogHandler(nullptr);

}  // namespace
