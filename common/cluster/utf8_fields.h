#ifndef SYNCLINE_COMMON_CLUSTER_UTF8_FIELDS_H_
#define SYNCLINE_COMMON_CLUSTER_UTF8_FIELDS_H_

#include "google/protobuf/message.h"

namespace syncline {

// Replaces the text of all string fields of `message`, and of the messages in
// it, by Utf8Text of it. A message with other bytes in a string can be sent,
// but its receiver cannot parse it and ends the stream. Called where messages
// leave that may quote what others wrote: data files, names of files, models.
// Fields of type bytes stay as they are.
void MakeStringsUtf8(google::protobuf::Message* message);

}  // namespace syncline

#endif  // SYNCLINE_COMMON_CLUSTER_UTF8_FIELDS_H_
