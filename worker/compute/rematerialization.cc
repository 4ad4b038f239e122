#include "worker/compute/rematerialization.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "common/model/graph/graph.h"
#include "common/model/graph/operator_list.h"

namespace syncline::worker {
namespace {

class RematerializationPlanner {
 public:
  explicit RematerializationPlanner(const StepMemorySpec& spec)
      : spec_(spec),
        graph_(*spec.graph),
        made_at_(graph_.values.size(), -1),
        root_(graph_.values.size()),
        last_read_(graph_.values.size(), -1) {
    std::iota(root_.begin(), root_.end(), 0);
    for (int p = 0; p < positions(); ++p) {
      for (ValueId y : node(p).outputs) {
        if (y != kNoValue) made_at_[y] = p;
      }
      if (op(p).traits().is_view) {
        root_[node(p).outputs[0]] = root_[node(p).inputs[0]];
      }
      ForEachInput(p, [&](ValueId x) { last_read_[root_[x]] = p; });
    }
    last_read_[root_[spec.loss_output]] = positions();
  }

  Rematerialization Plan() {
    Cut();
    FindKept();
    FindRuns();
    return std::move(result_);
  }

 private:
  int positions() const { return spec_.loss_step(); }
  const Node& node(int p) const { return graph_.nodes[spec_.flow->nodes[p]]; }
  const Op& op(int p) const { return *spec_.ops[p]; }

  int64_t Bytes(ValueId v) const {
    return ElementCount(spec_.shapes[v]) *
           static_cast<int64_t>(DTypeBytes(graph_.values[v].dtype));
  }

  template <typename Visit>
  void ForEachInput(int p, Visit visit) const {
    for (ValueId x : node(p).inputs) {
      if (x != kNoValue) visit(x);
    }
  }

  // Calls visit(v) for the values with memory of their own that `p` makes.
  template <typename Visit>
  void ForEachMade(int p, Visit visit) const {
    for (ValueId y : node(p).outputs) {
      if (y != kNoValue && root_[y] == y) visit(y);
    }
  }

  // ---- Where to cut ----

  // By position p: bytes that all before it make; [positions()] is all.
  std::vector<int64_t> BytesBefore() const {
    std::vector<int64_t> before = {0};
    for (int p = 0; p < positions(); ++p) {
      int64_t bytes = op(p).traits().workspace_bytes;
      ForEachMade(p, [&](ValueId y) { bytes += Bytes(y); });
      before.push_back(before.back() + bytes);
    }
    return before;
  }

  // By position p: bytes of what is made before it and read from it on.
  std::vector<int64_t> BytesCrossing() const {
    std::vector<int64_t> change(positions() + 1, 0);
    for (int p = 0; p < positions(); ++p) {
      ForEachMade(p, [&](ValueId y) {
        if (last_read_[y] <= p) return;
        change[p + 1] += Bytes(y);
        if (last_read_[y] < positions()) change[last_read_[y] + 1] -= Bytes(y);
      });
    }
    std::partial_sum(change.begin(), change.end(), change.begin());
    return change;
  }

  // Around each of the places that cut the bytes into equal parts: where the
  // least crosses, or else what is nearest.
  void Cut() {
    result_.segments = {0};
    const std::vector<int64_t> before = BytesBefore();
    const std::vector<int64_t> crossing = BytesCrossing();
    const double share = static_cast<double>(before.back()) /
                         std::max(1, spec_.recompute_segments);
    int p = 1;
    for (int s = 1; s < spec_.recompute_segments; ++s) {
      std::optional<int> best;
      const auto distance = [&](int at) {
        return std::fabs(static_cast<double>(before[at]) - s * share);
      };
      for (; p < positions(); ++p) {
        if (static_cast<double>(before[p]) >= (s + 0.5) * share) break;
        if (static_cast<double>(before[p]) < (s - 0.5) * share) continue;
        if (!best || crossing[p] < crossing[*best] ||
            (crossing[p] == crossing[*best] && distance(p) < distance(*best))) {
          best = p;
        }
      }
      if (best) result_.segments.push_back(*best);
    }
  }

  int SegmentOf(int p) const {
    const auto& begins = result_.segments;
    return static_cast<int>(std::upper_bound(begins.begin(), begins.end(), p) -
                            begins.begin() - 1);
  }
  int last_segment() const {
    return static_cast<int>(result_.segments.size()) - 1;
  }

  // ---- What to keep, and what to run again ----

  // Values that share memory are kept together.
  void FindKept() {
    result_.kept.assign(graph_.values.size(), true);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId root = root_[v];
      if (made_at_[root] < 0) continue;  // given
      const int segment = SegmentOf(made_at_[root]);
      const int until = std::min(last_read_[root], positions() - 1);
      result_.kept[v] = segment == last_segment() ||
                        SegmentOf(until) > segment ||
                        last_read_[root] == positions();
    }
  }

  void FindRuns() {
    std::vector<bool> needed(graph_.values.size(), false);
    result_.runs_again.assign(positions(), false);
    const auto need = [&](ValueId v) {
      if (v != kNoValue && !result_.kept[v]) needed[v] = true;
    };
    // Positions from the last to the first: who reads comes before who makes.
    const int end = result_.segments.back();
    for (int p = end - 1; p >= 0; --p) NeedForBackward(p, need);
    for (int p = end - 1; p >= 0; --p) {
      bool runs =
          spec_.flow->RunsBackward(p) && op(p).traits().workspace_bytes > 0;
      for (ValueId y : node(p).outputs) runs |= y != kNoValue && needed[y];
      result_.runs_again[p] = runs;
      if (runs) ForEachInput(p, need);
    }
  }

  template <typename Need>
  void NeedForBackward(int p, Need need) const {
    if (!spec_.flow->RunsBackward(p)) return;
    const Op::Traits& traits = op(p).traits();
    for (size_t i = 0; i < node(p).inputs.size(); ++i) {
      if (HasPosition(traits.backward_inputs, i)) need(node(p).inputs[i]);
    }
    for (size_t i = 0; i < node(p).outputs.size(); ++i) {
      if (HasPosition(traits.backward_outputs, i)) need(node(p).outputs[i]);
    }
  }

  const StepMemorySpec& spec_;
  const Graph& graph_;
  std::vector<int> made_at_;    // by ValueId: position; -1: given
  std::vector<ValueId> root_;   // by ValueId: whose memory it has
  std::vector<int> last_read_;  // by root: position; -1: never
  Rematerialization result_;
};

}  // namespace

Rematerialization PlanRematerialization(const StepMemorySpec& spec) {
  return RematerializationPlanner(spec).Plan();
}

}  // namespace syncline::worker
