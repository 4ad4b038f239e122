// Goal: a message can be parsed by its receiver whatever bytes were put into
// its strings. Method: bytes that are no UTF-8 in each kind of field, over the
// wire format.

#include "common/cluster/utf8_fields.h"

#include <string>

#include "gtest/gtest.h"
#include "proto/scheduler.pb.h"

namespace syncline {
namespace {

// "Größe" in Latin-1.
constexpr char kLatin1[] =
    "Gr\xf6\xdf"
    "e";
constexpr char kEscaped[] = "Gr\\xf6\\xdfe";

TEST(Utf8FieldsTest, ProblemsWithForeignBytesArrive) {
  DaemonMessage message;
  message.mutable_prepared()->set_job_id("j-1");
  message.mutable_prepared()->add_problems("plain");
  message.mutable_prepared()->add_problems(kLatin1);
  message.mutable_prepared()
      ->mutable_data()
      ->add_sources()
      ->add_files()
      ->set_name(kLatin1);
  DaemonMessage received;
  ASSERT_FALSE(received.ParseFromString(message.SerializeAsString()))
      << "protobuf takes it as it is";
  MakeStringsUtf8(&message);
  ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
  EXPECT_EQ(received.prepared().problems(0), "plain");
  EXPECT_EQ(received.prepared().problems(1), kEscaped);
  EXPECT_EQ(received.prepared().data().sources(0).files(0).name(), kEscaped);
}

TEST(Utf8FieldsTest, OptionalStringsToo) {
  WorkerReport report;
  report.set_activity(kLatin1);
  MakeStringsUtf8(&report);
  EXPECT_EQ(report.activity(), kEscaped);
  report.clear_activity();
  MakeStringsUtf8(&report);
  EXPECT_FALSE(report.has_activity());
}

TEST(Utf8FieldsTest, BytesStayAsTheyAre) {
  UploadBegin begin;
  begin.set_session_secret(kLatin1);
  begin.set_name(kLatin1);
  MakeStringsUtf8(&begin);
  EXPECT_EQ(begin.session_secret(), kLatin1);
  EXPECT_EQ(begin.name(), kEscaped);
}

}  // namespace
}  // namespace syncline
