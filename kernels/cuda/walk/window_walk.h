#ifndef SYNCLINE_KERNELS_CUDA_WALK_WINDOW_WALK_H_
#define SYNCLINE_KERNELS_CUDA_WALK_WINDOW_WALK_H_

// Walks over the elements of one window, and over the windows that one element
// is in, in the order of the plane. So gradients are gathered by each element,
// and nothing is added to what another thread adds to.

#include <cstdint>

#include "kernels/cuda/language.h"
#include "kernels/elementwise/host_device.h"
#include "kernels/window.h"

namespace syncline::cuda {

// Places and numbers of windows within a plane. An int32 counts its elements,
// and what padding, a window and a stride add to an axis: plans see to that
// (worker/ops/nn/window.cc).
struct PlaneAxis {
  int in = 1;
  int out = 1;
  int kernel = 1;
  int stride = 1;
  int dilation = 1;
  int pad_begin = 0;

  // The first window that element `i` may be in, and the last one.
  SYNCLINE_DEVICE int FirstWindow(int i) const {
    const int behind = i + pad_begin - (kernel - 1) * dilation;
    return behind <= 0 ? 0 : (behind + stride - 1) / stride;
  }
  SYNCLINE_DEVICE int LastWindow(int i) const {
    const int last = (i + pad_begin) / stride;
    return last < out ? last : out - 1;
  }
  SYNCLINE_DEVICE bool IsIn(int i, int window) const {
    return (i + pad_begin - window * stride) % dilation == 0;
  }
};

// Three axes, the outermost of them of size 1 where the window has fewer.
struct Plane {
  PlaneAxis d, h, w;

  SYNCLINE_HOST_DEVICE int in_count() const { return d.in * h.in * w.in; }
  SYNCLINE_HOST_DEVICE int out_count() const { return d.out * h.out * w.out; }

  // Calls f(i) for each element of window `o` that is inside the plane.
  template <typename F>
  SYNCLINE_DEVICE void ForEachElement(int o, F f) const {
    const int first_w = o % w.out * w.stride - w.pad_begin;
    const int first_h = o / w.out % h.out * h.stride - h.pad_begin;
    const int first_d = o / w.out / h.out * d.stride - d.pad_begin;
    for (int kd = 0; kd < d.kernel; ++kd) {
      const int id = first_d + kd * d.dilation;
      if (id < 0 || id >= d.in) continue;
      for (int kh = 0; kh < h.kernel; ++kh) {
        const int ih = first_h + kh * h.dilation;
        if (ih < 0 || ih >= h.in) continue;
        for (int kw = 0; kw < w.kernel; ++kw) {
          const int iw = first_w + kw * w.dilation;
          if (iw >= 0 && iw < w.in) f((id * h.in + ih) * w.in + iw);
        }
      }
    }
  }

  // Calls f(o) for each window that element `i` is in.
  template <typename F>
  SYNCLINE_DEVICE void ForEachWindow(int i, F f) const {
    const int iw = i % w.in;
    const int ih = i / w.in % h.in;
    const int id = i / w.in / h.in;
    for (int od = d.FirstWindow(id); od <= d.LastWindow(id); ++od) {
      if (!d.IsIn(id, od)) continue;
      for (int oh = h.FirstWindow(ih); oh <= h.LastWindow(ih); ++oh) {
        if (!h.IsIn(ih, oh)) continue;
        for (int ow = w.FirstWindow(iw); ow <= w.LastWindow(iw); ++ow) {
          if (w.IsIn(iw, ow)) f((od * h.out + oh) * w.out + ow);
        }
      }
    }
  }
};

inline Plane MakePlane(const Window& window) {
  Plane plane;
  PlaneAxis* const axes[] = {&plane.d, &plane.h, &plane.w};
  const size_t missing = Window::kAxesMax - window.axes.size();
  for (size_t a = 0; a < window.axes.size(); ++a) {
    const Window::Axis& axis = window.axes[a];
    *axes[missing + a] = {
        static_cast<int>(axis.in),       static_cast<int>(axis.out),
        static_cast<int>(axis.kernel),   static_cast<int>(axis.stride),
        static_cast<int>(axis.dilation), static_cast<int>(axis.pad_begin)};
  }
  return plane;
}

}  // namespace syncline::cuda

#endif  // SYNCLINE_KERNELS_CUDA_WALK_WINDOW_WALK_H_
