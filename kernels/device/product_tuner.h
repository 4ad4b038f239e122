#ifndef SYNCLINE_KERNELS_DEVICE_PRODUCT_TUNER_H_
#define SYNCLINE_KERNELS_DEVICE_PRODUCT_TUNER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "kernels/device/product_table.h"

namespace syncline {

class Device;
class Stream;

// Chooses the algorithms of a device's matrix products. A library's own first
// choice is an estimate; here some of its choices are measured, between jobs'
// steps never, and what was chosen is a table, which other devices of the same
// model and version follow, so that all of a job have the same bits.
// Thread-safe, but that no product runs while Follow or Tune does.
class ProductTuner {
 public:
  // A product as a library compiled it, and what it may do otherwise. Its
  // functions are called by one thread at a time.
  class Product {
   public:
    virtual ~Product() = default;
    // All that the library chooses by: shape, layout, types, what is added. The
    // same for products that are alike. A key of ProductTable.
    virtual const std::string& key() const = 0;
    // The library's algorithms that give the same bits each time and need no
    // memory of their own: the one that it expects to be fastest first, at most
    // `count_max`. Errors: Internal: it refused, or has none.
    virtual absl::StatusOr<std::vector<std::string>> Algorithms(
        int count_max) = 0;
    // Whether the library takes an algorithm for this product, and it is as
    // those of Algorithms are.
    virtual bool Takes(absl::string_view algorithm) = 0;
    // Computes with it from now on. REQUIRES: Takes.
    virtual void Use(absl::string_view algorithm) = 0;
    // Memory for all arrays of the product.
    virtual int64_t array_bytes() const = 0;
    // The time that a product takes, on the device, with arrays in that memory.
    // Errors: Internal: the library or the device failed.
    virtual absl::StatusOr<absl::Duration> Measure(Stream& stream,
                                                   absl::string_view algorithm,
                                                   void* arrays) = 0;
  };

  // How much is measured.
  struct Limits {
    int algorithms_max = 8;  // of a product
    absl::Duration time_max = absl::Seconds(20);
    // An algorithm must be faster than the library's first choice by this part
    // of its time.
    double margin = 0.03;
    // An error ends it; between two algorithms. May be null.
    std::function<absl::Status()> go_on;
  };
  struct Report {
    int known = 0;     // keys that a table had
    int measured = 0;  // keys
    int changed = 0;   // of these, other than the library's first choice
    // Keys for which time, memory or the library did not suffice: these have
    // the library's first choice.
    std::vector<std::string> unmeasured;
    absl::Duration took;
  };

  explicit ProductTuner(ProductLibrary library)
      : following_(std::move(library)) {}

  ProductLibrary library() const;

  // A product that has been compiled, with the library's first choice: it is
  // changed to what is followed. Until Remove.
  void Add(Product* product);
  void Remove(Product* product);

  // From now on products use this table's algorithms, those that exist and
  // those to come; what it lacks, or what the library refuses, is the library's
  // first choice. Errors: FailedPrecondition: the table is of another GPU or
  // library, and nothing changes. Internal: the library failed.
  absl::Status Follow(const ProductTable& table);
  // Keys of what is followed that the library has refused since Follow.
  int refused() const;

  // Chooses for all products that exist and have no algorithm in what is
  // followed: as `known` has it, if it is of this GPU and library, else the
  // fastest that is measured on `device`. What is followed then has the keys of
  // all products that exist. Errors: Limits::go_on's, the device's: what was
  // chosen by then is followed.
  absl::StatusOr<Report> Tune(Device& device, const ProductTable& known,
                              const Limits& limits);
  ProductTable table() const;

 private:
  absl::Status Apply(Product* product) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Has all products of the key use the algorithm.
  void Choose(const std::string& key, absl::string_view algorithm)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  ProductTable following_ ABSL_GUARDED_BY(mu_);
  int refused_ ABSL_GUARDED_BY(mu_) = 0;
  std::multimap<std::string, Product*> products_ ABSL_GUARDED_BY(mu_);
};

}  // namespace syncline

#endif  // SYNCLINE_KERNELS_DEVICE_PRODUCT_TUNER_H_
