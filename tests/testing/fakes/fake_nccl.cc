// A library with NCCL's functions that reduces nothing, of the version
// SYNCLINE_FAKE_VERSION. Loaded by nccl_test in the place of NVIDIA's. With
// SYNCLINE_FAKE_LACKS_ABORT it has no ncclCommAbort.

extern "C" {
int ncclGetVersion(int* version) {
  *version = SYNCLINE_FAKE_VERSION;
  return 0;
}
const char* ncclGetErrorString(int) { return "unhandled system error"; }
const char* ncclGetLastError(void*) { return ""; }

#define SYNCLINE_FAKE(name) \
  int name() { return 2; }
SYNCLINE_FAKE(ncclGetUniqueId)
SYNCLINE_FAKE(ncclCommInitRankConfig)
SYNCLINE_FAKE(ncclCommFinalize)
SYNCLINE_FAKE(ncclCommDestroy)
#ifndef SYNCLINE_FAKE_LACKS_ABORT
SYNCLINE_FAKE(ncclCommAbort)
#endif
SYNCLINE_FAKE(ncclCommGetAsyncError)
SYNCLINE_FAKE(ncclAllReduce)
SYNCLINE_FAKE(ncclReduceScatter)
SYNCLINE_FAKE(ncclAllGather)
}
