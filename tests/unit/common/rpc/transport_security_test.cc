// Goal: both ends of a connection are whom the other expects, files are checked
// before they are used and taken up when they change, and a peer that lost its
// right is cut off. Method: servers and channels with certificates of their own
// in one process, over loopback.

#include "common/rpc/transport_security.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/rpc/grpc_channel.h"
#include "common/rpc/grpc_status.h"
#include "common/security/certificate.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/scheduler.grpc.pb.h"
#include "tests/testing/eventually.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kAge = absl::Minutes(10);

class AnswersJobs final : public Jobs::CallbackService {
 public:
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const GetRequest*, JobStatus*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

CertificateAndKey Authority() {
  const absl::Time now = absl::Now();
  return *MakeAuthority("CA", now - absl::Hours(1), now + absl::Hours(1));
}

class TransportSecurityTest : public ::testing::Test {
 protected:
  // Writes NAME.crt, NAME.key and NAME.ca.
  TlsFiles Write(const std::string& name, const CertificateAndKey& own,
                 const CertificateAndKey& authority) {
    TlsFiles files = {dir_.File(name + ".crt"), dir_.File(name + ".key"),
                      dir_.File(name + ".ca")};
    EXPECT_OK(WriteFileAtomically(files.key, own.key_pem));
    EXPECT_OK(WriteFileAtomically(files.certificate, own.certificate_pem));
    EXPECT_OK(WriteFileAtomically(files.authority, authority.certificate_pem));
    return files;
  }
  static CertificateAndKey Issue(const std::vector<std::string>& uris,
                                 const CertificateAndKey& authority) {
    const absl::Time now = absl::Now();
    return *IssueCertificate(authority, "x", uris, now - absl::Hours(1),
                             now + absl::Hours(1));
  }
  std::shared_ptr<const TransportSecurity> As(const std::string& identity,
                                              absl::Duration age = kAge) {
    return As(identity, authority_, age);
  }
  std::shared_ptr<const TransportSecurity> As(
      const std::string& identity, const CertificateAndKey& authority,
      absl::Duration age = kAge) {
    const std::string name = absl::StrCat("file", ++files_);
    auto security = TransportSecurity::Load(
        Write(name,
              Issue({absl::StrCat("syncline://prod/", identity)}, authority),
              authority),
        age, absl::Now());
    EXPECT_OK(security);
    return *security;
  }
  // A scheduler that answers Get.
  void Serve(const std::shared_ptr<const TransportSecurity>& security) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    auto server = StartServer(&builder, "127.0.0.1:0", security);
    ASSERT_OK(server);
    server_ = *std::move(server);
  }
  std::unique_ptr<Jobs::Stub> Connect(
      const std::shared_ptr<const TransportSecurity>& security,
      ExpectedPeer expected = ExpectedPeer::kScheduler) {
    return Jobs::NewStub(MakeChannel(server_.address, expected, security));
  }
  static absl::Status Get(Jobs::Stub* stub) {
    const auto context = MakeContext(MonotonicNow() + kLong);
    JobStatus job;
    return FromGrpcStatus(stub->Get(context.get(), GetRequest(), &job));
  }

  TempDir dir_;
  const CertificateAndKey authority_ = Authority();
  AnswersJobs service_;
  ListeningServer server_;
  int files_ = 0;
};

TEST_F(TransportSecurityTest, RolesThatFitTalkToEachOther) {
  Serve(As("scheduler"));
  EXPECT_OK(Get(Connect(As("client/alice")).get()));
}

TEST_F(TransportSecurityTest, AMethodIsRefusedToAnotherRoleByName) {
  Serve(As("scheduler"));
  const absl::Status refused = Get(Connect(As("worker/3")).get());
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("names worker/3"));
}

TEST_F(TransportSecurityTest, AnotherRoleAtTheAddressIsRefusedByTheClient) {
  Serve(As("ps/0"));
  const absl::Status refused = Get(Connect(As("client/alice")).get());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("names ps/0; expected: scheduler"));
}

TEST_F(TransportSecurityTest, AnotherClustersNamesCountForNothing) {
  Serve(As("scheduler"));
  const auto stranger = TransportSecurity::Load(
      Write("stranger", Issue({"syncline://test/client/alice"}, authority_),
            authority_),
      kAge, absl::Now());
  ASSERT_OK(stranger);
  EXPECT_FALSE(Get(Connect(*stranger).get()).ok());
}

TEST_F(TransportSecurityTest, AnotherAuthorityIsRefusedByBothEnds) {
  Serve(As("scheduler"));
  const CertificateAndKey other = Authority();
  // The client believes in another authority.
  EXPECT_EQ(Get(Connect(As("client/alice", other)).get()).code(),
            absl::StatusCode::kUnavailable);
  // The client believes the server, but shows a certificate of another.
  TlsFiles files =
      Write("mixed", Issue({"syncline://prod/client/alice"}, other), other);
  const auto mixed = TransportSecurity::Load(files, kAge, absl::Now());
  ASSERT_OK(mixed);
  ASSERT_OK(WriteFileAtomically(files.authority, authority_.certificate_pem));
  EXPECT_EQ(TransportSecurity::Load(files, kAge, absl::Now()).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(TransportSecurityTest, PlainTextAndTlsDoNotMix) {
  Serve(As("scheduler"));
  const absl::Status plain = Get(Connect(nullptr).get());
  EXPECT_EQ(plain.code(), absl::StatusCode::kUnavailable) << plain;
  EXPECT_THAT(std::string(plain.message()), HasSubstr("perhaps it wants TLS"));
  Serve(nullptr);
  const absl::Status tls = Get(Connect(As("client/alice")).get());
  EXPECT_EQ(tls.code(), absl::StatusCode::kUnavailable) << tls;
  EXPECT_THAT(std::string(tls.message()),
              HasSubstr("perhaps it is without TLS"));
}

TEST_F(TransportSecurityTest, WhatIsWrongWithTheFilesIsSaidWithTheirName) {
  const CertificateAndKey own = Issue({"syncline://prod/ps"}, authority_);
  const auto load = [&](const TlsFiles& files) {
    return TransportSecurity::Load(files, kAge, absl::Now()).status();
  };
  TlsFiles files = Write("own", own, authority_);
  EXPECT_OK(load(files));
  TlsFiles missing = files;
  missing.key = dir_.File("none");
  EXPECT_EQ(load(missing).code(), absl::StatusCode::kNotFound);
  TlsFiles swapped = files;
  swapped.key = files.authority;
  EXPECT_THAT(std::string(load(swapped).message()), HasSubstr(files.authority));
  EXPECT_THAT(std::string(load(Write("web", Issue({"https://prod"}, authority_),
                                     authority_))
                              .message()),
              HasSubstr("synctl certs"));
  EXPECT_THAT(
      std::string(load(Write("two",
                             Issue({"syncline://prod/ps", "syncline://test/ps"},
                                   authority_),
                             authority_))
                      .message()),
      HasSubstr("two clusters"));
  EXPECT_THAT(std::string(TransportSecurity::Load(files, kAge,
                                                  absl::Now() + absl::Hours(2))
                              .status()
                              .message()),
              HasSubstr("expired"));
}

TEST_F(TransportSecurityTest, ReplacedFilesAreTakenUp) {
  const std::string uri = "syncline://prod/scheduler";
  const TlsFiles files = Write("server", Issue({uri}, authority_), authority_);
  const auto server = TransportSecurity::Load(files, kAge, absl::Now());
  ASSERT_OK(server);
  Serve(*server);
  const CertificateAndKey next = Authority();
  const auto client = As("client/alice", next);
  EXPECT_FALSE(Get(Connect(client).get()).ok());
  Write("server", Issue({uri}, next), next);
  absl::Status last;
  EXPECT_TRUE(Eventually(kLong, [&] {
    last = Get(Connect(client).get());
    return last.ok();
  })) << last;
}

TEST_F(TransportSecurityTest, AnExpiredPeerIsCutOff) {
  const auto server = As("scheduler", absl::Seconds(1));
  Serve(server);
  const absl::Time now = absl::Now();
  const auto short_lived = TransportSecurity::Load(
      Write("short",
            *IssueCertificate(authority_, "x", {"syncline://prod/client/a"},
                              now - absl::Hours(1), now + absl::Seconds(5)),
            authority_),
      kAge, now);
  ASSERT_OK(short_lived);
  const auto stub = Connect(*short_lived);
  absl::Status last;
  EXPECT_TRUE(Eventually(kLong, [&] {
    last = Get(stub.get());
    return !last.ok();
  }));
  // By the call, or by the handshake of the next connection.
  EXPECT_TRUE(absl::IsUnavailable(last) || absl::IsUnauthenticated(last))
      << last;
}

TEST_F(TransportSecurityTest, AnExpiredPeerIsRefusedOnAnOldConnectionToo) {
  Serve(As("scheduler"));  // its connections live longer than the test
  std::unique_ptr<Jobs::Stub> stub;
  absl::Status last = absl::UnknownError("no call yet");
  // A busy machine may not connect before the first one has ended.
  for (int seconds = 5; !last.ok() && seconds <= 45; seconds *= 3) {
    const absl::Time now = absl::Now();
    const auto short_lived = TransportSecurity::Load(
        Write(absl::StrCat("short", seconds),
              *IssueCertificate(authority_, "x", {"syncline://prod/client/a"},
                                now - absl::Hours(1),
                                now + absl::Seconds(seconds)),
              authority_),
        kAge, now);
    ASSERT_OK(short_lived);
    stub = Connect(*short_lived);
    last = Get(stub.get());
  }
  ASSERT_OK(last);
  EXPECT_TRUE(Eventually(kLong, [&] {
    last = Get(stub.get());
    return !last.ok();
  }));
  EXPECT_EQ(last.code(), absl::StatusCode::kUnauthenticated) << last;
  EXPECT_THAT(std::string(last.message()), HasSubstr("ended at"));
}

TEST_F(TransportSecurityTest, ARevokedPeerIsCutOffByTheAgeOfItsConnection) {
  const std::string uri = "syncline://prod/scheduler";
  const TlsFiles files = Write("server", Issue({uri}, authority_), authority_);
  const auto server =
      TransportSecurity::Load(files, absl::Seconds(2), absl::Now());
  ASSERT_OK(server);
  Serve(*server);
  const auto revoked = Connect(As("client/alice"));
  ASSERT_OK(Get(revoked.get()));
  // The server does not believe in the client's authority from now on.
  const CertificateAndKey next = Authority();
  Write("server", Issue({uri}, next), next);
  absl::Status last;
  EXPECT_TRUE(Eventually(kLong, [&] {
    last = Get(revoked.get());
    return !last.ok();
  }));
  EXPECT_EQ(last.code(), absl::StatusCode::kUnavailable) << last;
}

// On a connection that exists, too.
TEST_F(TransportSecurityTest, ARevokedCertificateBeginsNoCall) {
  const std::string list = dir_.File("revoked");
  ASSERT_OK(WriteFileAtomically(list, ""));
  TlsFiles files = Write(
      "server", Issue({"syncline://prod/scheduler"}, authority_), authority_);
  files.revoked = list;
  const auto server = TransportSecurity::Load(files, kAge, absl::Now());
  ASSERT_OK(server);
  Serve(*server);
  const CertificateAndKey alice =
      Issue({"syncline://prod/client/alice"}, authority_);
  const auto client = TransportSecurity::Load(Write("alice", alice, authority_),
                                              kAge, absl::Now());
  ASSERT_OK(client);
  const auto stub = Connect(*client);
  EXPECT_OK(Get(stub.get()));
  ASSERT_OK(WriteFileAtomically(
      list, ReadCertificate(alice.certificate_pem)->sha256));
  absl::Status refused;
  EXPECT_TRUE(Eventually(kLong, [&] {
    refused = Get(stub.get());
    return !refused.ok();
  }));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("is revoked"));
  EXPECT_OK(Get(Connect(As("client/bob")).get()));

  // A server with such a certificate gets no call.
  TlsFiles careful = Write(
      "bob", Issue({"syncline://prod/client/bob"}, authority_), authority_);
  const std::string others = dir_.File("others");
  ASSERT_OK(WriteFileAtomically(
      others, ReadCertificate(*ReadFile(files.certificate, 1 << 20))->sha256));
  careful.revoked = others;
  const auto bob = TransportSecurity::Load(careful, kAge, absl::Now());
  ASSERT_OK(bob);
  const absl::Status no_server = Get(Connect(*bob).get());
  EXPECT_EQ(no_server.code(), absl::StatusCode::kUnavailable) << no_server;
  EXPECT_THAT(std::string(no_server.message()), HasSubstr("is revoked"));
}

// An authority that `issuer` has signed, or that signs itself if that is null.
// It may sign others.
struct Signer {
  explicit Signer(const Signer* issuer) : key(EVP_EC_gen("P-256")) {
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate),
                     issuer == nullptr ? 1 : 2);
    X509_NAME_add_entry_by_txt(
        X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
        reinterpret_cast<const unsigned char*>(issuer == nullptr ? "root"
                                                                 : "middle"),
        -1, -1, 0);
    const Signer* const by = issuer == nullptr ? this : issuer;
    X509_set_issuer_name(certificate, X509_get_subject_name(by->certificate));
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    for (const auto& [nid, value] :
         {std::pair(NID_basic_constraints, "critical,CA:TRUE"),
          std::pair(NID_key_usage, "critical,keyCertSign,cRLSign"),
          std::pair(NID_subject_key_identifier, "hash")}) {
      X509V3_CTX context;
      X509V3_set_ctx(&context, by->certificate, certificate, nullptr, nullptr,
                     0);
      X509_EXTENSION* extension =
          X509V3_EXT_conf_nid(nullptr, &context, nid, value);
      X509_add_ext(certificate, extension, -1);
      X509_EXTENSION_free(extension);
    }
    EXPECT_NE(X509_sign(certificate, by->key, EVP_sha256()), 0);
  }
  ~Signer() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  CertificateAndKey Pem() const {
    const auto text = [](const auto& write) {
      BIO* bio = BIO_new(BIO_s_mem());
      write(bio);
      const char* data = nullptr;
      const auto size = BIO_get_mem_data(bio, &data);
      std::string pem(data, static_cast<size_t>(size));
      BIO_free(bio);
      return pem;
    };
    return {text([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); }),
            text([&](BIO* bio) {
              PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr,
                                       nullptr);
            })};
  }

  X509* certificate = X509_new();
  EVP_PKEY* key;
};

TEST_F(TransportSecurityTest, AChainNeedsItsIntermediateAuthority) {
  const Signer root(nullptr);
  const Signer middle(&root);
  CertificateAndKey own = Issue({"syncline://prod/scheduler"}, middle.Pem());
  own.certificate_pem += middle.Pem().certificate_pem;
  // With the root alone the process refuses its own certificate.
  const auto alone = TransportSecurity::Load(Write("alone", own, root.Pem()),
                                             kAge, absl::Now());
  EXPECT_EQ(alone.status().code(), absl::StatusCode::kPermissionDenied)
      << alone.status();
  CertificateAndKey both = root.Pem();
  both.certificate_pem += middle.Pem().certificate_pem;
  const auto server =
      TransportSecurity::Load(Write("both", own, both), kAge, absl::Now());
  ASSERT_OK(server);
  Serve(*server);
  const auto client = TransportSecurity::Load(
      Write("client", Issue({"syncline://prod/client/alice"}, middle.Pem()),
            both),
      kAge, absl::Now());
  ASSERT_OK(client);
  EXPECT_OK(Get(Connect(*client).get()));
}

}  // namespace
}  // namespace syncline
