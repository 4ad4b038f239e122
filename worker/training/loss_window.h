#ifndef SYNCLINE_WORKER_TRAINING_LOSS_WINDOW_H_
#define SYNCLINE_WORKER_TRAINING_LOSS_WINDOW_H_

#include <cstdint>
#include <vector>

namespace syncline::worker {

// How a loss falls over some steps: a line through their losses, by least
// squares. Its error is what the scatter of the losses around it leaves open.
struct LossTrend {
  // False: there are too few losses, or they took no time.
  bool known = false;
  double per_second = 0;  // the fall of the loss; negative: it rises
  double error = 0;       // standard error of per_second
  int freedom = 0;        // degrees of freedom of `error`
  double last = 0;        // the line at the last step
  double scatter = 0;     // standard deviation of one step's loss from the line
};

// The losses of the steps of a window, in bounded memory: neighbours become one
// where there are too many. Thread-compatible.
class LossWindow {
 public:
  // A step that took so long ended, with this mean loss. REQUIRES: it is
  // finite.
  void Add(double seconds, double loss);
  // A step without a loss: the time counts.
  void Skip(double seconds) { now_ += seconds; }
  LossTrend Trend() const;

 private:
  // Of neighbouring steps.
  struct Bin {
    int64_t steps = 0;
    double time = 0;  // sums
    double loss = 0;
  };

  std::vector<Bin> bins_;
  int64_t steps_per_bin_ = 1;
  double now_ = 0;  // seconds since the window began
};

}  // namespace syncline::worker

#endif  // SYNCLINE_WORKER_TRAINING_LOSS_WINDOW_H_
