// OpenMPI's all-reduce, for syncline-bench collective: prints "elements
// seconds" for each number of float32 in its arguments, as collective_rank
// does.
//
//   mpirun -np 2 mpi_allreduce 1024 1048576

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

// The most all-reduces of one size; `syncline-bench collective --smoke` sets
// fewer.
size_t TimesMax() {
  const char* const text = std::getenv("SYNCLINE_ALLREDUCE_TIMES_MAX");
  return text != nullptr ? std::max(6ul, std::strtoul(text, nullptr, 10))
                         : 4000;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int failures = 0;
  for (int arg = 1; arg < argc; ++arg) {
    const size_t count = std::strtoull(argv[arg], nullptr, 10);
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] =
          static_cast<float>((i + static_cast<size_t>(rank) * 7) % 1000);
    }
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(count),
                  MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (size_t r = 0; r < static_cast<size_t>(ranks); ++r) {
        sum += static_cast<float>((i + r * 7) % 1000);
      }
      if (values[i] != sum) ++failures;
    }
    std::fill(values.begin(), values.end(), 1e-30f);
    const int times = static_cast<int>(
        std::clamp<size_t>((size_t{64} << 20) / (count + 1), 6, TimesMax()));
    std::vector<double> seconds;
    for (int i = 0; i < times; ++i) {
      const double start = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(count),
                    MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      seconds.push_back(MPI_Wtime() - start);
    }
    std::sort(seconds.begin(), seconds.end());
    if (rank == 0) {
      std::printf("%zu %.9f\n", count, seconds[seconds.size() / 2]);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return failures == 0 ? 0 : 1;
}
