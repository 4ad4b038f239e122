#include "scheduler/service/refusal_limit.h"

namespace syncline::scheduler {
namespace {

constexpr char kOthers[] = "others";

}  // namespace

std::vector<RefusalLimit::LeftOut> RefusalLimit::TakeLeftOut(absl::Time now) {
  std::vector<LeftOut> left_out;
  // A clock that went back begins a period, too.
  if (now >= began_ && now < began_ + kPeriod) return left_out;
  for (const auto& [who, count] : callers_) {
    if (count.left_out > 0) left_out.push_back({who, count.left_out});
  }
  callers_.clear();
  taken_ = 0;
  began_ = now;
  return left_out;
}

bool RefusalLimit::Takes(const std::string& who) {
  const bool is_known = callers_.contains(who) || callers_.size() < kCallersMax;
  Count& count = callers_[is_known ? who : kOthers];
  if (count.taken >= kEachMax || taken_ >= kAllMax) {
    ++count.left_out;
    return false;
  }
  ++count.taken;
  ++taken_;
  return true;
}

}  // namespace syncline::scheduler
