#ifndef SYNCLINE_TESTS_TESTING_FAKES_FAKE_PS_H_
#define SYNCLINE_TESTS_TESTING_FAKES_FAKE_PS_H_

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/rpc/grpc_channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "tests/testing/fakes/wait_log.h"

namespace syncline {

// A ps on port 0 that does what a test says: every call, of any method, is
// logged and given to the test's function, which answers it or holds it.
// Thread-safe.
class FakePs {
 public:
  struct Call {
    std::string method;   // "PushPull"
    std::string request;  // serialised
    std::shared_ptr<std::atomic<bool>> is_cancelled =
        std::make_shared<std::atomic<bool>>(false);

    template <typename Message>
    Message As() const {
      Message message;
      EXPECT_TRUE(message.ParseFromString(request)) << method;
      return message;
    }
  };
  struct Answer {
    grpc::Status status = grpc::Status::OK;
    std::string response = {};  // serialised
    bool is_held = false;       // until Release, or until the call is cancelled
    bool is_taken = false;      // the initial metadata leave at once
    // If set: gives the answer, after the metadata. It runs on a thread of its
    // own and may block; it should end when the call is cancelled.
    std::function<Answer()> later = nullptr;
  };
  // To a method that the test's shard does not have.
  static Answer Unimplemented() {
    return {.status = {grpc::StatusCode::UNIMPLEMENTED, "not in this fake"}};
  }
  // Called on threads of gRPC, several at a time.
  using AnswerFunction = std::function<Answer(const Call&)>;

  explicit FakePs(AnswerFunction answer_call)
      : service_(this, std::move(answer_call)) {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&service_);
    server_ = *StartServer(&builder, "127.0.0.1:0");
  }
  // REQUIRES: no call is held, unless its client is gone.
  ~FakePs() {
    Shutdown();
    MutexLock lock(&mu_);
    for (std::thread& thread : threads_) thread.join();
  }

  const std::string& address() const { return server_.address; }
  // Ends the server, as when its process is gone.
  void Shutdown() { server_.server->Shutdown(); }

  // In the order in which the calls came.
  WaitLog<Call>& calls() { return calls_; }
  // Answers the call that has been held longest. REQUIRES: one is held.
  void Release() {
    Reactor* reactor = nullptr;
    {
      MutexLock lock(&mu_);
      reactor = held_.front();
      held_.pop_front();
    }
    reactor->SendAnswer();
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(FakePs* ps, const AnswerFunction& answer_call,
            const std::string& path)
        : ps_(*ps), answer_call_(answer_call) {
      call_.method = path.substr(path.rfind('/') + 1);
      StartRead(&request_);
    }

    void OnReadDone(bool ok) override {
      if (!ok) return Finish({grpc::StatusCode::INTERNAL, "no request"});
      std::vector<grpc::Slice> slices;
      if (!request_.Dump(&slices).ok()) {
        return Finish({grpc::StatusCode::INTERNAL, "no slices"});
      }
      for (const grpc::Slice& slice : slices) {
        call_.request.append(reinterpret_cast<const char*>(slice.begin()),
                             slice.size());
      }
      answer_ = answer_call_(call_);
      if (answer_.is_taken) StartSendInitialMetadata();
      if (answer_.later) return AnswerLater();
      bool is_held = answer_.is_held;
      {
        MutexLock lock(&ps_.mu_);
        if (is_cancelled_) is_held = false;
        if (is_held) ps_.held_.push_back(this);
      }
      // After it is held, so that a test that has seen the call may release it.
      ps_.calls_.Add(call_);
      if (!is_held) SendAnswer();
    }

    void OnCancel() override {
      {
        MutexLock lock(&ps_.mu_);
        is_cancelled_ = true;
        call_.is_cancelled->store(true);
        const auto held = std::find(ps_.held_.begin(), ps_.held_.end(), this);
        if (held == ps_.held_.end()) return;
        ps_.held_.erase(held);
      }
      Finish(grpc::Status::CANCELLED);
    }

    void SendAnswer() {
      if (!answer_.status.ok()) return Finish(answer_.status);
      const grpc::Slice slice(answer_.response);
      response_ = grpc::ByteBuffer(&slice, 1);
      StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    }

    void OnDone() override { delete this; }

   private:
    void AnswerLater() {
      ps_.calls_.Add(call_);
      MutexLock lock(&ps_.mu_);
      ps_.threads_.emplace_back([this] {
        bool is_taken = answer_.is_taken;
        while (answer_.later) {
          answer_ = std::function<Answer()>(answer_.later)();
          if (answer_.is_taken && !is_taken) StartSendInitialMetadata();
          is_taken |= answer_.is_taken;
        }
        SendAnswer();
      });
    }

    FakePs& ps_;
    const AnswerFunction& answer_call_;
    Call call_;
    Answer answer_;
    grpc::ByteBuffer request_;
    grpc::ByteBuffer response_;
    bool is_cancelled_ = false;  // guarded by FakePs::mu_
  };

  class Service final : public grpc::CallbackGenericService {
   public:
    Service(FakePs* ps, AnswerFunction answer_call)
        : ps_(ps), answer_call_(std::move(answer_call)) {}
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      return new Reactor(ps_, answer_call_, context->method());
    }

   private:
    FakePs* const ps_;
    const AnswerFunction answer_call_;
  };

  Service service_;
  WaitLog<Call> calls_;
  Mutex mu_;
  std::deque<Reactor*> held_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  ListeningServer server_;  // last: its threads use the rest
};

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_FAKES_FAKE_PS_H_
