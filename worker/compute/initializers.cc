#include "worker/compute/initializers.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "common/base/random.h"

namespace syncline::worker {
namespace {

constexpr uint64_t kInitializerStream = 0x696e6974;  // "init"
constexpr float kScaleDefault = 0.05f;

void FillUniform(double bound, Random* random, absl::Span<float> values) {
  for (float& value : values) {
    value = static_cast<float>((2 * random->Uniform() - 1) * bound);
  }
}

void FillNormal(double deviation, Random* random, absl::Span<float> values) {
  for (float& value : values) {
    value = static_cast<float>(random->Normal() * deviation);
  }
}

}  // namespace

bool LooksAtFans(InitializerRule::Scheme scheme) {
  switch (scheme) {
    case InitializerRule::XAVIER_UNIFORM:
    case InitializerRule::XAVIER_NORMAL:
    case InitializerRule::HE_UNIFORM:
    case InitializerRule::HE_NORMAL:
      return true;
    default:
      return false;
  }
}

void InitializeParameter(const InitializerRule& rule, const Fans& fans,
                         uint64_t seed, absl::string_view name,
                         absl::Span<float> values) {
  Random random(SeedFor(SeedFor(seed, kInitializerStream), HashName(name)));
  const double in = std::max<int64_t>(fans.in, 1);
  const double out = std::max<int64_t>(fans.out, 1);
  const double bound = rule.scale() > 0 ? rule.scale() : kScaleDefault;
  const double factor = rule.scale() > 0 ? rule.scale() : 1;
  switch (rule.scheme()) {
    case InitializerRule::ZEROS:
      return std::fill(values.begin(), values.end(), 0.0f);
    case InitializerRule::CONSTANT:
      return std::fill(values.begin(), values.end(), rule.value());
    case InitializerRule::UNIFORM:
      return FillUniform(bound, &random, values);
    case InitializerRule::NORMAL:
      return FillNormal(bound, &random, values);
    case InitializerRule::XAVIER_UNIFORM:
      return FillUniform(factor * std::sqrt(6 / (in + out)), &random, values);
    case InitializerRule::XAVIER_NORMAL:
      return FillNormal(factor * std::sqrt(2 / (in + out)), &random, values);
    case InitializerRule::HE_UNIFORM:
      return FillUniform(factor * std::sqrt(6 / in), &random, values);
    case InitializerRule::HE_NORMAL:
      return FillNormal(factor * std::sqrt(2 / in), &random, values);
    default:
      SYNCLINE_CHECK(false && "the job was not validated");
  }
}

}  // namespace syncline::worker
