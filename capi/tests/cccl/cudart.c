/* The one function of the CUDA runtime that unoptimised code of CCCL 3.1 to 3.4 refers to. It describes an error that does not
 * occur here. */
const char *cudaGetErrorString(int code) {
    (void)code;
    return "an error of a runtime that is not there";
}
