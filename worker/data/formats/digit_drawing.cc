#include "worker/data/formats/digit_drawing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"

namespace syncline::worker {
namespace {

struct Point {
  float x = 0;
  float y = 0;
};

// A pen movement through `points`, in a box of 1 x 1 with y down.
struct Stroke {
  bool smooth = false;  // a Catmull-Rom curve, else straight lines
  std::vector<Point> points;
};

// One way to write a digit.
using Glyph = std::vector<Stroke>;

// How people write each digit; every way is as likely as the others.
const std::vector<Glyph>& GlyphsOf(int digit) {
  constexpr bool kSmooth = true;
  constexpr bool kStraight = false;
  static const auto* const glyphs = new std::array<std::vector<Glyph>, 10>{{
      // 0: a ring, closed or open at the top.
      {{{kSmooth,
         {{.5f, .1f},
          {.3f, .25f},
          {.25f, .5f},
          {.32f, .78f},
          {.5f, .9f},
          {.68f, .78f},
          {.75f, .5f},
          {.69f, .24f},
          {.5f, .1f}}}},
       {{kSmooth,
         {{.58f, .12f},
          {.36f, .18f},
          {.27f, .5f},
          {.36f, .82f},
          {.54f, .88f},
          {.71f, .7f},
          {.72f, .36f},
          {.6f, .14f},
          {.44f, .16f}}}}},
      // 1: a line, with a flag, with a flag and a foot.
      {{{kStraight, {{.52f, .1f}, {.5f, .5f}, {.48f, .9f}}}},
       {{kStraight, {{.36f, .28f}, {.54f, .1f}, {.5f, .9f}}}},
       {{kStraight, {{.36f, .26f}, {.52f, .1f}, {.5f, .88f}}},
        {kStraight, {{.32f, .89f}, {.7f, .88f}}}}},
      // 2: with a straight foot, with a loop.
      {{{kSmooth,
         {{.27f, .3f},
          {.38f, .13f},
          {.6f, .12f},
          {.71f, .3f},
          {.6f, .52f},
          {.42f, .7f},
          {.26f, .88f}}},
        {kStraight, {{.26f, .88f}, {.75f, .86f}}}},
       {{kSmooth,
         {{.28f, .24f},
          {.46f, .1f},
          {.68f, .24f},
          {.6f, .52f},
          {.4f, .8f},
          {.27f, .84f},
          {.34f, .72f},
          {.52f, .84f},
          {.76f, .85f}}}}},
      // 3: round, with a flat top.
      {{{kSmooth,
         {{.28f, .2f}, {.48f, .1f}, {.68f, .24f}, {.6f, .42f}, {.44f, .48f}}},
        {kSmooth,
         {{.44f, .48f},
          {.66f, .54f},
          {.73f, .72f},
          {.54f, .9f},
          {.26f, .82f}}}},
       {{kStraight, {{.28f, .12f}, {.7f, .12f}, {.46f, .44f}}},
        {kSmooth,
         {{.46f, .44f}, {.7f, .54f}, {.7f, .78f}, {.48f, .9f}, {.26f, .8f}}}}},
      // 4: open, closed.
      {{{kStraight, {{.3f, .12f}, {.26f, .56f}, {.78f, .54f}}},
        {kStraight, {{.66f, .3f}, {.62f, .9f}}}},
       {{kStraight, {{.6f, .1f}, {.22f, .62f}, {.8f, .6f}}},
        {kStraight, {{.6f, .1f}, {.6f, .9f}}}}},
      // 5: with a hat, in one movement.
      {{{kStraight, {{.72f, .12f}, {.36f, .13f}, {.32f, .46f}}},
        {kSmooth,
         {{.32f, .46f}, {.54f, .4f}, {.73f, .6f}, {.6f, .86f}, {.27f, .84f}}}},
       {{kSmooth,
         {{.7f, .14f},
          {.4f, .13f},
          {.32f, .42f},
          {.58f, .46f},
          {.72f, .68f},
          {.52f, .9f},
          {.26f, .84f}}}}},
      // 6: curved, with a straight back.
      {{{kSmooth,
         {{.66f, .12f},
          {.42f, .3f},
          {.28f, .62f},
          {.42f, .88f},
          {.66f, .82f},
          {.7f, .62f},
          {.5f, .52f},
          {.31f, .66f}}}},
       {{kSmooth,
         {{.44f, .1f},
          {.34f, .4f},
          {.29f, .68f},
          {.46f, .9f},
          {.68f, .78f},
          {.62f, .56f},
          {.42f, .56f},
          {.3f, .72f}}}}},
      // 7: plain, crossed, with a serif.
      {{{kStraight, {{.25f, .13f}, {.75f, .13f}, {.44f, .9f}}}},
       {{kStraight, {{.25f, .13f}, {.74f, .13f}, {.44f, .9f}}},
        {kStraight, {{.38f, .52f}, {.7f, .5f}}}},
       {{kSmooth,
         {{.24f, .24f},
          {.3f, .13f},
          {.72f, .16f},
          {.56f, .48f},
          {.46f, .9f}}}}},
      // 8: in one movement, of two rings.
      {{{kSmooth,
         {{.68f, .2f},
          {.46f, .1f},
          {.32f, .26f},
          {.5f, .47f},
          {.7f, .7f},
          {.5f, .9f},
          {.3f, .72f},
          {.5f, .47f},
          {.69f, .28f},
          {.62f, .14f}}}},
       {{kSmooth,
         {{.5f, .48f}, {.33f, .3f}, {.5f, .1f}, {.67f, .3f}, {.5f, .48f}}},
        {kSmooth,
         {{.5f, .48f}, {.28f, .7f}, {.5f, .9f}, {.72f, .7f}, {.5f, .48f}}}}},
      // 9: with a straight leg, with a hook.
      {{{kSmooth,
         {{.69f, .28f}, {.5f, .1f}, {.31f, .3f}, {.46f, .48f}, {.69f, .3f}}},
        {kStraight, {{.7f, .22f}, {.64f, .9f}}}},
       {{kSmooth,
         {{.68f, .24f},
          {.48f, .12f},
          {.31f, .32f},
          {.5f, .48f},
          {.69f, .28f},
          {.7f, .58f},
          {.58f, .86f},
          {.32f, .86f}}}}},
  }};
  return (*glyphs)[digit];
}

// Uniform in [-bound, bound), from 24 bits: exact in a float.
float Spread(Random* random, float bound) {
  const auto bits = static_cast<int32_t>(random->Next() >> 40);
  return static_cast<float>(bits - (1 << 23)) * 0x1.0p-23f * bound;
}

float Between(Random* random, float low, float high) {
  const float half = (high - low) * 0.5f;
  return low + half + Spread(random, half);
}

// How one person holds the pen: the map from the box to pixels, and the pen.
struct Hand {
  float xx, xy, yx, yy;  // linear part
  Point center;
  float wobble;  // of each point, in the box
  float radius;  // of the pen, in pixels
  float ink;
  int noise;

  explicit Hand(Random* random) {
    // Turn by `a` (cos and sin to third order, so no library), then slant.
    const float a = Spread(random, 0.35f);
    const float slant = Spread(random, 0.30f);
    const float width = Between(random, 17.0f, 26.0f);
    const float height = Between(random, 18.0f, 26.0f);
    const float cos_a = 1.0f - a * a * 0.5f;
    const float sin_a = a - a * a * a * (1.0f / 6.0f);
    xx = cos_a * width;
    xy = (slant * cos_a - sin_a) * height;
    yx = sin_a * width;
    yy = (slant * sin_a + cos_a) * height;
    center = {kDigitSide * 0.5f + Spread(random, 2.5f),
              kDigitSide * 0.5f + Spread(random, 2.5f)};
    wobble = Between(random, 0.01f, 0.10f);
    radius = Between(random, 0.6f, 1.6f);
    ink = Between(random, 130.0f, 255.0f);
    noise = static_cast<int>(random->Below(40));
  }

  Point ToPixels(Point p) const {
    const float x = p.x - 0.5f;
    const float y = p.y - 0.5f;
    return {center.x + xx * x + xy * y, center.y + yx * x + yy * y};
  }
};

// Coverage of each pixel by ink, 0..1.
class Canvas {
 public:
  // Draws a line with round ends; where lines overlap the darker wins.
  void Line(Point a, Point b, float radius) {
    const float reach = radius + 0.5f;
    const int x_end = Pixel(std::max(a.x, b.x) + reach) + 1;
    const int y_end = Pixel(std::max(a.y, b.y) + reach) + 1;
    for (int y = Pixel(std::min(a.y, b.y) - reach); y < y_end; ++y) {
      for (int x = Pixel(std::min(a.x, b.x) - reach); x < x_end; ++x) {
        const float covered = reach - Distance({x + 0.5f, y + 0.5f}, a, b);
        float& pixel = coverage_[y * kDigitSide + x];
        pixel = std::max(pixel, std::min(covered, 1.0f));
      }
    }
  }
  float coverage(int pixel) const { return coverage_[pixel]; }

 private:
  static int Pixel(float position) {
    return std::clamp(static_cast<int>(position), 0, kDigitSide - 1);
  }
  static float Distance(Point p, Point a, Point b) {
    const Point along = {b.x - a.x, b.y - a.y};
    const Point to = {p.x - a.x, p.y - a.y};
    const float length2 = along.x * along.x + along.y * along.y;
    const float dot = to.x * along.x + to.y * along.y;
    const float t = length2 > 0 ? std::clamp(dot / length2, 0.0f, 1.0f) : 0.0f;
    const Point off = {to.x - t * along.x, to.y - t * along.y};
    return std::sqrt(off.x * off.x + off.y * off.y);
  }

  std::array<float, kDigitPixels> coverage_ = {};
};

// Catmull and Rom 1974, between b and c.
float Spline(float a, float b, float c, float d, float t) {
  const float linear = c - a;
  const float square = 2 * a - 5 * b + 4 * c - d;
  const float cube = 3 * (b - c) + d - a;
  return b + 0.5f * t * (linear + t * (square + t * cube));
}

void DrawCurve(const std::vector<Point>& points, float radius, Canvas* canvas) {
  constexpr int kPieces = 5;
  const int last = static_cast<int>(points.size()) - 1;
  for (int i = 0; i < last; ++i) {
    const Point& a = points[std::max(i - 1, 0)];
    const Point& b = points[i];
    const Point& c = points[i + 1];
    const Point& d = points[std::min(i + 2, last)];
    Point from = b;
    for (int piece = 1; piece <= kPieces; ++piece) {
      const float t = static_cast<float>(piece) / kPieces;
      const Point to = {Spline(a.x, b.x, c.x, d.x, t),
                        Spline(a.y, b.y, c.y, d.y, t)};
      canvas->Line(from, to, radius);
      from = to;
    }
  }
}

void DrawStroke(const Stroke& stroke, const Hand& hand, Random* random,
                Canvas* canvas) {
  std::vector<Point> points;
  points.reserve(stroke.points.size());
  for (Point p : stroke.points) {
    p.x += Spread(random, hand.wobble);
    p.y += Spread(random, hand.wobble);
    points.push_back(hand.ToPixels(p));
  }
  if (stroke.smooth) return DrawCurve(points, hand.radius, canvas);
  for (size_t i = 1; i < points.size(); ++i) {
    canvas->Line(points[i - 1], points[i], hand.radius);
  }
}

Random SampleRandom(uint64_t seed, int64_t sample) {
  constexpr uint64_t kDigitsStream = 0x646967697473;  // "digits"
  return Random(SeedFor(SeedFor(seed, kDigitsStream), sample));
}

int TakeLabel(Random* random) { return static_cast<int>(random->Below(10)); }

}  // namespace

int DigitLabel(uint64_t seed, int64_t sample) {
  Random random = SampleRandom(seed, sample);
  return TakeLabel(&random);
}

void DrawDigit(uint64_t seed, int64_t sample, absl::Span<uint8_t> pixels) {
  SYNCLINE_CHECK(pixels.size() == kDigitPixels);
  Random random = SampleRandom(seed, sample);
  const std::vector<Glyph>& glyphs = GlyphsOf(TakeLabel(&random));
  const Glyph& glyph = glyphs[random.Below(glyphs.size())];
  const Hand hand(&random);
  Canvas canvas;
  for (const Stroke& stroke : glyph) {
    DrawStroke(stroke, hand, &random, &canvas);
  }
  for (int i = 0; i < kDigitPixels; ++i) {
    const int ink = static_cast<int>(canvas.coverage(i) * hand.ink);
    const int noise =
        static_cast<int>(random.Below(2 * hand.noise + 1)) - hand.noise;
    pixels[i] = static_cast<uint8_t>(std::clamp(ink + noise, 0, 255));
  }
}

}  // namespace syncline::worker
