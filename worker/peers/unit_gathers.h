#ifndef SYNCLINE_WORKER_PEERS_UNIT_GATHERS_H_
#define SYNCLINE_WORKER_PEERS_UNIT_GATHERS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/aligned_buffer.h"
#include "common/base/element_type.h"
#include "worker/collectives/peer_transport.h"
#include "worker/compute/parameter_gatherer.h"
#include "worker/peers/block_owners.h"
#include "worker/peers/peer_link.h"
#include "worker/peers/step_reduction.h"

namespace syncline::worker {

// One rank's part in the gathers of a step's units (ParameterGatherer), of a
// job whose values are at their owners alone: stage 3 of SHARDED.
//
//   Open   this rank's part of every unit ─> every other rank
//   Begin  the parts of the others ─> the unit's memory; the own one is copied
//   Close  the parts of units that the step did not come to are taken and
//          dropped, or their senders would wait
//
// Nobody is asked for a part: all ranks have the same units, and a message
// whose receiver is not there yet waits in its sender's memory. That is the
// state itself, so values on their way take no memory at their owner. It must
// not change before they have left: see HasLeft.
//
// With 16 bits on the wire, parts are sent from a rounded copy of the own
// values, and steps read rounded ones, the own too. The chief alone is sent
// whole ones, in a step before which it could read a cut, and rounds them
// itself if it has not.
//
// All calls come from one thread, but for what callbacks of the transport do.
class UnitGathers final : public ParameterGatherer {
 public:
  struct Options {
    // Tensors by unit; the same at all ranks.
    std::vector<std::vector<int>> units;
    std::vector<std::string> names;  // of tensors, for messages; may be empty
    ElementType wire_type = ElementType::kFloat32;
    // Sends pieces that stay as they are until `sent`.
    std::function<void(uint32_t to, const PeerTag& tag,
                       absl::Span<const ConstPeerMemory> pieces,
                       std::function<void()> sent)>
        send;
    // Called by callbacks of the transport: so many elements have come, each as
    // `type`.
    std::function<void(ElementType type, size_t elements)> arrived;
    // Waits until done(), and does meanwhile what has come. `missing`: what is
    // waited for, in words.
    std::function<absl::Status(absl::FunctionRef<bool()> done,
                               absl::FunctionRef<std::string()> missing)>
        await;
  };
  // How a step's values come, where they travel in 16 bits.
  struct Form {
    bool whole_to_chief = true;  // the same at all ranks
    bool trains_whole = true;    // false at all ranks but the chief
  };
  // More units have no room among the messages of a transport.
  static constexpr size_t kUnitsMax = 1 << 14;

  // REQUIRES: kUnitsMax units at most; reduction and link outlive this, and
  // callbacks of the link's messages end before it does.
  UnitGathers(Options options, const StepReduction* reduction, PeerLink* link);

  // A step begins. REQUIRES: all_here(), what was sent has left, and the state
  // has the values.
  void Open(int64_t clock, const Form& form);
  void Begin(int unit, absl::Span<float* const> to) override;
  absl::Status Await(int unit) override;
  void Release(int) override {}
  // The step reads no value any more.
  void Close();
  // Of what Begin and Close have asked for, nothing is on its way.
  bool all_here() const { return coming_.load() == 0; }
  // Missing of all units that were asked for: "the values of unit 3 ('w1',
  // 'b1'), of rank 2 (worker:2 at ...)".
  std::string MissingText() const;
  // The own values of a bucket have left, so they may change.
  bool HasLeft(uint32_t bucket) const;

 private:
  // An owner's part of a unit; a bucket for its layout alone.
  struct Part {
    Bucket layout;
    std::atomic<bool> is_here{true};
  };
  struct Unit {
    std::vector<std::unique_ptr<Part>> parts;  // by rank
    std::vector<float*> to;                    // by tensor of the unit
    bool is_asked = false;                     // in this step
    std::atomic<int> coming{0};                // parts
    std::atomic<int> leaving{0};  // messages of the state's own memory
  };
  const BlockMap& map() const { return reduction_.map(); }
  PeerTag TagOf(size_t unit) const {
    return {.clock = clock_,
            .kind = kUnitValues,
            .item = static_cast<uint32_t>(unit)};
  }
  void CutParts(size_t unit);
  bool narrows() const { return options_.wire_type != ElementType::kFloat32; }
  // The type in which values travel to `rank` in the open step.
  ElementType TypeTo(uint32_t rank) const {
    return rank == 0 && form_.whole_to_chief ? ElementType::kFloat32
                                             : options_.wire_type;
  }
  // The copy of an own block.
  uint16_t* RoundedOf(uint32_t block) {
    return reinterpret_cast<uint16_t*>(rounded_.data()) +
           rounded_offsets_[block];
  }
  // Rounds the own values into the copy.
  void RoundOwn();
  // The own part, of the state or of its copy.
  std::vector<ConstPeerMemory> OwnPart(size_t unit, ElementType type);
  // Makes the step's values of what has come from others.
  void Widen(size_t unit);
  // The place of a tensor's values in the unit's memory.
  float* PlaceOf(size_t unit, uint32_t tensor) const;
  void CopyOwn(size_t unit);
  // `keeps`: into the unit's memory, else they are dropped.
  void Receive(size_t unit, bool keeps);
  std::string MissingOf(size_t unit) const;

  const Options options_;
  const StepReduction& reduction_;
  PeerLink& link_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<std::vector<size_t>> units_of_bucket_;
  AlignedFloats rounded_;                // own values, block by block
  std::vector<size_t> rounded_offsets_;  // by block of the map, in elements
  int64_t clock_ = -1;
  Form form_;
  std::atomic<int> coming_{0};  // parts
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_PEERS_UNIT_GATHERS_H_
