#include "tests/bench/map_service.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/grpc_status.h"
#include "common/wire/frame.h"
#include "kernels/optimizer/row_optimizer.h"
#include "proto/parameter_server.grpc.pb.h"

namespace syncline {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;

class MapService final : public ParameterServer::WithRawCallbackMethod_Push<
                             ParameterServer::WithRawCallbackMethod_Pull<
                                 ParameterServer::WithCallbackMethod_Init<
                                     ParameterServer::Service>>> {
 public:
  explicit MapService(uint32_t dim)
      : dim_(dim), optimizer_({.kind = OptimizerKind::kRowWiseAdagrad}, dim) {}

  grpc::ServerUnaryReactor* Init(CallbackServerContext* context,
                                 const InitRequest*, InitResponse*) override {
    return Answer(context, absl::OkStatus());
  }
  grpc::ServerUnaryReactor* Push(CallbackServerContext* context,
                                 const ByteBuffer* request,
                                 ByteBuffer* response) override {
    PushHeader header;
    PayloadView payload;
    const absl::Status read = DecodeFrame(*request, &header, &payload);
    if (read.ok()) Update(header.tables(0).rows(), payload);
    *response = EncodeFrame(PushHeader(), {});
    return Answer(context, read);
  }
  grpc::ServerUnaryReactor* Pull(CallbackServerContext* context,
                                 const ByteBuffer* request,
                                 ByteBuffer* response) override {
    PullHeader header;
    PayloadView payload;
    const absl::Status read = DecodeFrame(*request, &header, &payload);
    if (read.ok()) {
      PullResponseHeader rows;
      *rows.mutable_tables() = header.tables();
      *response = EncodeFrame(rows, {Read(header.tables(0).rows(), payload)});
    }
    return Answer(context, read);
  }

 private:
  static grpc::ServerUnaryReactor* Answer(CallbackServerContext* context,
                                          const absl::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

  std::vector<uint64_t> Keys(size_t rows, const PayloadView& payload) const {
    std::vector<uint64_t> keys(rows);
    payload.CopyTo(0, rows * sizeof(uint64_t), keys.data());
    return keys;
  }

  void Update(size_t rows, const PayloadView& payload) {
    const std::vector<uint64_t> keys = Keys(rows, payload);
    std::vector<float> gradients(rows * dim_);
    payload.CopyTo(rows * sizeof(uint64_t), gradients.size() * sizeof(float),
                   gradients.data());
    MutexLock lock(&mu_);
    for (size_t i = 0; i < rows; ++i) {
      std::vector<float>& row = rows_[keys[i]];
      if (row.empty()) {
        row.resize(dim_ + optimizer_.state_floats());
        optimizer_.InitState(row.data() + dim_);
      }
      const float* const gradient = gradients.data() + i * dim_;
      float* const values = row.data();
      optimizer_.Apply({.learning_rate = 0.01f}, 1, &gradient, &values);
    }
  }

  grpc::Slice Read(size_t rows, const PayloadView& payload) {
    const std::vector<uint64_t> keys = Keys(rows, payload);
    auto* values = new std::vector<float>(rows * dim_);
    {
      MutexLock lock(&mu_);
      for (size_t i = 0; i < rows; ++i) {
        const auto row = rows_.find(keys[i]);
        if (row == rows_.end()) continue;
        std::copy_n(row->second.data(), dim_, values->data() + i * dim_);
      }
    }
    return grpc::Slice(
        values->data(), values->size() * sizeof(float),
        [](void* p) { delete static_cast<std::vector<float>*>(p); }, values);
  }

  const size_t dim_;
  const RowOptimizer optimizer_;
  Mutex mu_;
  std::unordered_map<uint64_t, std::vector<float>> rows_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMapService(uint32_t dim) {
  return std::make_unique<MapService>(dim);
}

}  // namespace syncline
