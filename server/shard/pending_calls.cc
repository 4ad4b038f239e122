#include "server/shard/pending_calls.h"

#include <utility>

#include "common/base/check.h"

namespace syncline::ps {

uint64_t PendingCall::BytesHeld() const {
  const auto of_rows = [](const std::shared_ptr<CallRows>& rows) {
    return rows == nullptr ? 0 : rows->hold.bytes();
  };
  return payload.hold.bytes() + pull_hold.bytes() + of_rows(payload.pushed) +
         of_rows(pulled_rows);
}

CallToken PendingCalls::Add() {
  const CallToken token = next_token_++;
  calls_[token];
  return token;
}

PendingCall* PendingCalls::Find(CallToken token) {
  const auto found = calls_.find(token);
  return found == calls_.end() ? nullptr : &found->second;
}

PendingCall& PendingCalls::At(CallToken token) {
  PendingCall* const call = Find(token);
  SYNCLINE_CHECK(call != nullptr);
  return *call;
}

PendingCall PendingCalls::Extract(CallToken token) {
  const auto found = calls_.find(token);
  SYNCLINE_CHECK(found != calls_.end());
  SetParkedBytes(&found->second, 0);
  PendingCall call = std::move(found->second);
  calls_.erase(found);
  return call;
}

void PendingCalls::ReleasePayload(PendingCall* call) {
  call->payload = CallPayload();
  SetParkedBytes(call, 0);
}

void PendingCalls::SetParkedBytes(PendingCall* call, uint64_t bytes) {
  parked_bytes_ += bytes;
  parked_bytes_ -= std::exchange(call->parked_bytes, bytes);
}

void PendingCalls::ExtendDeadlines(absl::Duration by) {
  for (auto& [token, call] : calls_) call.deadline += by;
}

}  // namespace syncline::ps
