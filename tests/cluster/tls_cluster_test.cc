// Goal: with TLS a cluster trains as it does without, and whoever is not whom
// its certificate has to name is refused, with a message that says so. Method:
// the real executables, with certificates made by `synctl certs`.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/host_port.h"
#include "common/security/certificate.h"
#include "common/system/child_process.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/eventually.h"
#include "tests/testing/job_builder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_cluster.h"

namespace syncline {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kIdentities = {
    "scheduler", "ps/0", "ps/1", "chief/0", "worker/0", "client/admin"};

// Certificates in a folder of their own.
class Certificates {
 public:
  Certificates() { EXPECT_OK(Create()); }

  // The first time an authority too; later a renewal.
  absl::Status Create() const {
    std::vector<std::string> argv = {BinaryDir() + "/synctl", "certs", "create",
                                     "--dir", dir_.path()};
    argv.insert(argv.end(), kIdentities.begin(), kIdentities.end());
    auto program = RunningProgram::Start(dir_.path(), argv, {});
    if (!program.ok()) return program.status();
    const auto result = (*program)->Finish(absl::Seconds(60));
    if (!result.ok()) return result.status();
    if (result->exit.code != 0) return absl::UnknownError(result->err);
    return absl::OkStatus();
  }
  const std::string& dir() const { return dir_.path(); }
  std::vector<std::string> Flags(const std::string& name) const {
    return {absl::StrCat("--tls-cert=", dir(), "/", name, ".crt"),
            absl::StrCat("--tls-key=", dir(), "/", name, ".key"),
            absl::StrCat("--tls-ca=", dir(), "/ca.crt")};
  }

 private:
  const TempDir dir_;
};

absl::StatusOr<RunningProgram::Result> RunIn(
    const TempDir& dir, const std::string& binary,
    std::vector<std::string> flags, const std::vector<std::string>& more = {}) {
  flags.insert(flags.begin(), absl::StrCat(BinaryDir(), "/", binary));
  flags.insert(flags.end(), more.begin(), more.end());
  auto program = RunningProgram::Start(dir.path(), flags,
                                       {{"TF_CONFIG", std::nullopt},
                                        {"SYNCLINE_TLS_CERT", std::nullopt},
                                        {"SYNCLINE_TLS_KEY", std::nullopt},
                                        {"SYNCLINE_TLS_CA", std::nullopt}});
  if (!program.ok()) return program.status();
  return (*program)->Finish(absl::Seconds(100));
}

std::string Job(const TempDir& dir, int epochs) {
  JobSpec job = DigitsJob();
  job.mutable_resources()->set_workers(2);
  job.mutable_resources()->set_ps(2);
  job.mutable_training()->set_epochs(epochs);
  return WriteJob(dir, job, MlpModel(784, 32, 10));
}

// The scheduler of a cluster with TLS, two ps and two workers.
class TlsClusterTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    certificates_ = std::make_unique<Certificates>();
    cluster_ = std::make_unique<TestCluster>(TestCluster::Options{
        .ps = 2, .workers = 2, .certs_dir = certificates_->dir()});
    ASSERT_OK(cluster_->Start());
  }
  static void TearDownTestSuite() {
    cluster_.reset();
    certificates_.reset();
  }
  static std::string SchedulerFlag() {
    return absl::StrCat("--scheduler=", cluster_->scheduler_address());
  }
  static absl::StatusOr<RunningProgram::Result> List(
      const std::vector<std::string>& tls, std::string scheduler = "") {
    if (scheduler.empty()) scheduler = SchedulerFlag();
    return RunIn(cluster_->dir(), "synctl", {"list", scheduler}, tls);
  }

  static std::unique_ptr<Certificates> certificates_;
  static std::unique_ptr<TestCluster> cluster_;
};

std::unique_ptr<Certificates> TlsClusterTest::certificates_;
std::unique_ptr<TestCluster> TlsClusterTest::cluster_;

TEST_F(TlsClusterTest, AJobTrainsAndItsModelIsFetched) {
  ASSERT_OK_AND_ASSIGN(const JobStatus job,
                       cluster_->Train(Job(cluster_->dir(), 2)));
  EXPECT_OK(cluster_->FetchModel(job.job_id()));
}

TEST_F(TlsClusterTest, AWorkersCertificateStartsNoScheduler) {
  ASSERT_OK_AND_ASSIGN(
      const auto result,
      RunIn(cluster_->dir(), "syncline-scheduler",
            certificates_->Flags("worker-0"),
            {"--listen=127.0.0.1:0",
             "--state-dir=" + cluster_->dir().File("other-state")}));
  EXPECT_EQ(result.exit.code, 1);
  EXPECT_THAT(result.err,
              testing::AllOf(HasSubstr("this process hosts the scheduler"),
                             HasSubstr("names worker/0; expected: scheduler")));
}

TEST_F(TlsClusterTest, KeysAreReadableByTheirOwnerAlone) {
  for (const char* key : {"ca.key", "worker-0.key", "client-admin.key"}) {
    struct stat info = {};
    ASSERT_EQ(stat(absl::StrCat(certificates_->dir(), "/", key).c_str(), &info),
              0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << key;
  }
}

TEST_F(TlsClusterTest, AMembersCertificateMayNotUseSynctl) {
  ASSERT_OK_AND_ASSIGN(const auto result,
                       List(certificates_->Flags("worker-0")));
  EXPECT_EQ(result.exit.code, 1);
  EXPECT_THAT(result.err, HasSubstr("names worker/0"));
  EXPECT_THAT(result.err, HasSubstr("is for: client"));
}

TEST_F(TlsClusterTest, AClientsCertificateRegistersNoWorker) {
  ASSERT_OK_AND_ASSIGN(const auto result,
                       RunIn(cluster_->dir(), "syncline-worker",
                             {SchedulerFlag(), "--task=worker:7"},
                             certificates_->Flags("client-admin")));
  EXPECT_EQ(result.exit.code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("names client/admin"));
}

TEST_F(TlsClusterTest, ACertificateOfOneTaskRegistersNoOther) {
  ASSERT_OK_AND_ASSIGN(const auto other,
                       RunIn(cluster_->dir(), "syncline-worker",
                             {SchedulerFlag(), "--task=worker:7"},
                             certificates_->Flags("worker-0")));
  EXPECT_EQ(other.exit.code, 1) << other.err;
  EXPECT_THAT(other.err,
              HasSubstr("names worker/0, so it cannot register as worker:7"));
  ASSERT_OK_AND_ASSIGN(
      const auto role,
      RunIn(cluster_->dir(), "syncline-ps", {SchedulerFlag(), "--task=ps:7"},
            certificates_->Flags("worker-0")));
  EXPECT_EQ(role.exit.code, 1) << role.err;
  EXPECT_THAT(role.err, HasSubstr("cannot register as ps:7"));
}

TEST_F(TlsClusterTest, APsAtTheSchedulersAddressIsRefused) {
  ASSERT_OK_AND_ASSIGN(const ClusterStatus members, cluster_->Members());
  for (const auto& entry : members.members()) {
    if (entry.member().task().type() != PS) continue;
    ASSERT_OK_AND_ASSIGN(
        const auto result,
        List(certificates_->Flags("client-admin"),
             absl::StrCat("--scheduler=", entry.member().address())));
    EXPECT_EQ(result.exit.code, 3);
    EXPECT_THAT(result.err, HasSubstr("expected: scheduler"));
  }
}

TEST_F(TlsClusterTest, AnotherAuthorityIsRefused) {
  const Certificates others;
  ASSERT_OK_AND_ASSIGN(const auto result, List(others.Flags("client-admin")));
  EXPECT_EQ(result.exit.code, 3);
  EXPECT_THAT(result.err, HasSubstr("certificate verify failed"));
}

TEST_F(TlsClusterTest, PlainTextOnATlsPortSaysWhatToDo) {
  ASSERT_OK_AND_ASSIGN(const auto result, List({}));
  EXPECT_EQ(result.exit.code, 3);
  EXPECT_THAT(result.err, HasSubstr("--tls-cert"));
  EXPECT_TRUE(Eventually(absl::Seconds(30), [] {
    return absl::StrContains(cluster_->LogOf("scheduler"), "Handshake failed");
  }));
}

TEST_F(TlsClusterTest, TlsOnAPlainPortSaysWhatToDo) {
  TestCluster plain({.ps = 0, .workers = 0});
  ASSERT_OK(plain.Start());
  ASSERT_OK_AND_ASSIGN(
      const auto result,
      List(certificates_->Flags("client-admin"),
           absl::StrCat("--scheduler=", plain.scheduler_address())));
  EXPECT_EQ(result.exit.code, 3);
  EXPECT_THAT(result.err, HasSubstr("without TLS"));
}

TEST_F(TlsClusterTest, GarbageOnThePortHarmsNothing) {
  const auto address = ParseHostPort(cluster_->scheduler_address());
  ASSERT_OK(address);
  for (int i = 0; i < 20; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(address->port);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    // A record of TLS whose length is a lie, and other bytes.
    std::string bytes =
        i % 2 == 0 ? std::string("\x16\x03\x01\xff\xff", 5) : "";
    for (int j = 0; j < 1000; ++j) {
      bytes.push_back(static_cast<char>(j * 31 + i * 17));
    }
    (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
  }
  ASSERT_OK_AND_ASSIGN(const auto result,
                       List(certificates_->Flags("client-admin")));
  EXPECT_EQ(result.exit.code, 0) << result.err;
}

TEST_F(TlsClusterTest, APortForOthersNeedsTlsOrAWord) {
  ASSERT_OK_AND_ASSIGN(
      const auto refused,
      RunIn(cluster_->dir(), "syncline-ps",
            {SchedulerFlag(), "--listen=0.0.0.0:0", "--validate-only"}));
  EXPECT_EQ(refused.exit.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("say --insecure"));
  ASSERT_OK_AND_ASSIGN(const auto insecure,
                       RunIn(cluster_->dir(), "syncline-ps",
                             {SchedulerFlag(), "--listen=0.0.0.0:0",
                              "--insecure", "--validate-only"}));
  EXPECT_EQ(insecure.exit.code, 0) << insecure.err;
}

TEST(TlsOverTheNetworkTest, AJobTrainsWithoutSharedMemory) {
  const Certificates certificates;
  TestCluster cluster({.ps = 2,
                       .workers = 2,
                       .ps_flags = {"--shared-memory=off"},
                       .certs_dir = certificates.dir()});
  ASSERT_OK(cluster.Start());
  EXPECT_OK(cluster.Train(Job(cluster.dir(), 2)));
}

TEST(TlsRevocationTest, ARevokedMemberIsDroppedAndItsJobSaysWhy) {
  const Certificates certificates;
  const std::string list = absl::StrCat(certificates.dir(), "/revoked");
  ASSERT_OK(WriteFileAtomically(list, "# nobody\n"));
  TestCluster cluster({.ps = 1,
                       .workers = 2,
                       .certs_dir = certificates.dir(),
                       .flags = {absl::StrCat("--tls-revoked=", list)}});
  ASSERT_OK(cluster.Start());
  JobSpec spec = DigitsJob();
  spec.mutable_resources()->set_workers(2);
  spec.mutable_resources()->set_ps(1);
  spec.mutable_training()->set_epochs(100000);
  ASSERT_OK_AND_ASSIGN(
      const std::string job,
      cluster.Submit(WriteJob(cluster.dir(), spec, MlpModel(784, 32, 10))));
  ASSERT_OK(cluster.WaitForClock(job, 1, absl::Seconds(60)));
  ASSERT_OK_AND_ASSIGN(
      const std::string pem,
      ReadFile(absl::StrCat(certificates.dir(), "/worker-0.crt"), 1 << 20));
  ASSERT_OK_AND_ASSIGN(const CertificateInfo worker, ReadCertificate(pem));
  ASSERT_OK(WriteFileAtomically(list, worker.sha256));
  EXPECT_TRUE(Eventually(absl::Seconds(100), [&] {
    const auto members = cluster.Members();
    return members.ok() && members->members_size() == 2;
  }));
  ASSERT_OK_AND_ASSIGN(const auto watched, cluster.Synctl({"watch", job}));
  ASSERT_OK_AND_ASSIGN(const JobStatus status, cluster.Get(job));
  EXPECT_EQ(status.state(), FAILED);
  const std::string reason = status.transitions().rbegin()->reason();
  EXPECT_THAT(reason, HasSubstr("worker 0"));
  EXPECT_THAT(reason, HasSubstr("is revoked"));
}

// Connections live for a second here, so all of them are made anew many times
// during the job, sessions with the scheduler too.
TEST(TlsRenewalTest, AJobOutlivesItsConnectionsAndCertificates) {
  const Certificates certificates;
  TestCluster cluster({.ps = 2,
                       .workers = 2,
                       .ps_flags = {"--shared-memory=off"},
                       .certs_dir = certificates.dir(),
                       .flags = {"--tls-connection-age-seconds=1"}});
  ASSERT_OK(cluster.Start());
  ASSERT_OK_AND_ASSIGN(const std::string job,
                       cluster.Submit(Job(cluster.dir(), 100000)));
  ASSERT_OK(cluster.WaitForClock(job, 1, absl::Seconds(60)));
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(certificates.Create());
    ASSERT_OK_AND_ASSIGN(const JobStatus before, cluster.Get(job));
    // Longer than the age of a connection and its grace.
    absl::SleepFor(absl::Seconds(3));
    ASSERT_OK(cluster.WaitForClock(job, before.progress().clock() + 1,
                                   absl::Seconds(60)));
  }
  ASSERT_OK(cluster.Synctl({"cancel", job}));
  EXPECT_OK(cluster.WaitForFreeMembers(4, absl::Seconds(60)));
}

}  // namespace
}  // namespace syncline
