#include "common/model/batch_shapes.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/model/graph/describe.h"
#include "common/model/job_over_model.h"

namespace syncline {
namespace {

class ShapeChecker : private JobOverModel {
 public:
  using JobOverModel::JobOverModel;

  // Of each length, where batches have several.
  void CheckBuckets();
  void CheckBatchSizes();

 private:
  void CheckShapes(const std::string& path, int64_t batch_size, int64_t length);
  // Scores may depend on the length in their positions only, which must not
  // become fewer as it grows; true if they do depend on it. `score_count` is
  // the length's before, and becomes this one's.
  bool CheckPositions(const std::string& path, int64_t length,
                      int64_t* score_count);
};

// Shapes fit for every batch size once they fit for one (Model::Parse); what
// can still be wrong with a particular one is its size.
void ShapeChecker::CheckBatchSizes() {
  const bool open = absl::c_all_of(graph_.inputs, [&](ValueId id) {
    return !value(id).dims.empty() && value(id).dims[0] == kBatchDim;
  });
  if (!open) return;  // reported by ResolveFeeds
  CheckShapes("training.batch_size", spec_.training().batch_size(), 0);
  CheckShapes("training.eval_batch_size", spec_.training().eval_batch_size(),
              0);
}

void ShapeChecker::CheckShapes(const std::string& path, int64_t batch_size,
                               int64_t length) {
  const auto shapes = model_.InferShapes(batch_size, length);
  if (shapes.ok()) return;
  for (absl::string_view line :
       absl::StrSplit(shapes.status().message(), '\n')) {
    Problem(path, ": ", line);
  }
}

// Shapes that fit for the longest need not fit for others.
void ShapeChecker::CheckBuckets() {
  if (!spec_.data().has_buckets()) return;
  const LengthBuckets& buckets = spec_.data().buckets();
  const bool is_there = absl::c_any_of(
      graph_.inputs, [&](ValueId id) { return value(id).length_mask != 0; });
  if (!is_there) {
    Problem("data.buckets.dimension: ", Quote(buckets.dimension()),
            " is no symbolic dimension of the model's inputs ",
            DescribeNames(graph_, graph_.inputs));
    return;
  }
  bool positions_vary = false;
  int64_t score_count = 0;
  for (int i = 0; i < buckets.lengths_size(); ++i) {
    const std::string path = absl::StrCat("data.buckets.lengths[", i, "]");
    const size_t before = problems_->size();
    const uint32_t length = buckets.lengths(i);
    CheckShapes(path, spec_.training().batch_size(), length);
    if (problems_->size() > before || loss_output_ == kNoValue) continue;
    positions_vary |= CheckPositions(path, length, &score_count);
  }
  if (!positions_vary || spec_.data().label().has_ignore()) return;
  Problem("data.label.ignore: is required: the number of labels of ",
          Quote(value(loss_output_).name),
          " depends on data.buckets, and what follows a sample's own must not "
          "count");
}

bool ShapeChecker::CheckPositions(const std::string& path, int64_t length,
                                  int64_t* score_count) {
  const int64_t batch_size = spec_.training().batch_size();
  const auto shapes = model_.InferShapes(batch_size, length);
  const auto at_longest = model_.InferShapes(batch_size);
  if (!shapes.ok() || !at_longest.ok()) return false;
  const std::string& name = value(loss_output_).name;
  const Dims& scores = (*shapes)[loss_output_];
  const Dims& longest = (*at_longest)[loss_output_];
  const bool is_same = scores == longest;
  const bool fits =
      is_same || (spec_.loss().kind() == LossSpec::SOFTMAX_CROSS_ENTROPY &&
                  scores.size() > 1 && scores.front() == longest.front() &&
                  scores.back() == longest.back());
  // Labels are padded at their end, so the length is the first of the
  // positions.
  size_t first = 1;
  while (first + 1 < longest.size() && longest[first] == 1) ++first;
  for (size_t d = first + 1; fits && d < scores.size(); ++d) {
    if (scores[d] == longest[d]) continue;
    Problem(path, ": the scores ", Quote(name), " of a batch are ",
            DimsToString(scores), ", but ", DimsToString(longest),
            " at the longest; only dimension ", first,
            ", the first of the positions, may depend on the length: labels "
            "are padded at their end");
    return false;
  }
  if (!fits) {
    Problem(path, ": the scores ", Quote(name), " of a batch are ",
            DimsToString(scores), ", but ", DimsToString(longest),
            " at the longest; only the positions of SOFTMAX_CROSS_ENTROPY may "
            "depend on the length");
    return false;
  }
  const int64_t shorter = std::exchange(*score_count, ElementCount(scores));
  if (*score_count >= shorter) return !is_same;
  Problem(path, ": the scores ", Quote(name), " of a batch are ",
          DimsToString(scores),
          ", fewer than those of shorter samples; a longer sample must not "
          "have fewer positions");
  return false;
}

}  // namespace

void CheckBatchShapes(const JobSpec& spec, const Model& model,
                      ValueId loss_output, std::vector<std::string>* problems) {
  ShapeChecker checker(spec, model, loss_output, problems);
  checker.CheckBuckets();
  checker.CheckBatchSizes();
}

}  // namespace syncline
