#ifndef SYNCLINE_COMMON_MODEL_IMPORT_WEIGHT_CHOICE_H_
#define SYNCLINE_COMMON_MODEL_IMPORT_WEIGHT_CHOICE_H_

// Which float32 initializers are weights. Exporters store constants as
// initializers, too: a square root of 2, an attention's scale, the frequencies
// of a positional encoding.

#include <vector>

#include "absl/strings/string_view.h"
#include "common/model/graph/node.h"
#include "common/model/import/export_record.h"

namespace syncline {

struct Graph;
struct Initializer;

// Why an initializer is trained, or why it is not.
enum class WeightReason {
  // Trained.
  kFileSays,   // the file calls it a PARAMETER
  kStatistic,  // a running mean or variance
  kDeclared,   // it has no values in the file
  kStarted,    // likewise, and those of StartSpec.weights (start_weights.h)
  kJobTrains,  // model.train names it
  kJobFills,   // a rule of model.initialize names it
  kLayer,      // its place or its name is that of a layer's weight
  kAssumed,    // nothing says that it is a constant
  // Not trained.
  kFrozen,        // model.freeze names it
  kKept,          // a statistic of a layer that is in inference mode
  kBuffer,        // the file calls it a BUFFER
  kConstant,      // the file calls it a constant
  kUnnamed,       // the file calls others parameters, and says nothing of it
  kSingleNumber,  // one number that arithmetic uses
  kZeroState,     // zeros, only ever a recurrent network's initial state
  kMask,          // numbers so low that they hide what they are added to
  kFrequencies,   // a geometric sequence from 1 on, as of rotary embeddings
  kPositions,     // a table of sines or cosines by position
  kUnreached,     // no gradient of the loss reaches it
};
bool IsTrained(WeightReason reason);
// For people: "the file calls them BUFFER".
absl::string_view Explain(WeightReason reason);

// Uses of initializers by nodes. REQUIRES: the graph outlives it.
class WeightUses {
 public:
  explicit WeightUses(const Graph& graph);

  // The reason that follows from values and use alone: kStatistic, kLayer,
  // kAssumed, kSingleNumber, kZeroState, kMask, kFrequencies or kPositions.
  // Cost: as many steps as the initializer has values, and uses.
  WeightReason Judge(const Initializer& initializer) const;

  // How many nodes compute with the value, seen through those that only move
  // it.
  int ReaderCount(ValueId value) const;

  // An input of a node.
  struct Use {
    int node = 0;
    int input = 0;
  };

 private:
  // Of the value itself, or of what only moves it.
  std::vector<Use> UsesOf(ValueId value) const;
  bool IsBias(const Use& use) const;
  bool IsProduct(ValueId value) const;

  const Graph& graph_;
  std::vector<std::vector<Use>> readers_;  // by ValueId
};

}  // namespace syncline

#endif  // SYNCLINE_COMMON_MODEL_IMPORT_WEIGHT_CHOICE_H_
