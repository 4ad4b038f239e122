#ifndef SYNCLINE_TESTS_TESTING_SEED_COUNT_H_
#define SYNCLINE_TESTS_TESTING_SEED_COUNT_H_

namespace syncline {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// SeedCount: how many seeded histories a test runs. All of them in a plain
// build. An eighth under a sanitizer, which takes ten times as long for each,
// but at least one: its faults show in the first histories.
constexpr int SeedCount(int all) {
  if (!kSanitized) return all;
  return all < 8 ? 1 : all / 8;
}

}  // namespace syncline

#endif  // SYNCLINE_TESTS_TESTING_SEED_COUNT_H_
