C     COMMON blocks, one of them for each thread, and arrays of a
C     module, fixed form.
      MODULE FIELDS
        INTEGER, PARAMETER :: N = 120
        REAL*8 :: RHO(N), FLUX(0:N)
      END MODULE FIELDS

      SUBROUTINE STEP(I)
      USE FIELDS
      INTEGER I
      REAL*8 GAMMA, LIMIT
      INTEGER CALLS
      COMMON /GAS/ GAMMA, LIMIT
      COMMON /MINE/ CALLS
C$OMP THREADPRIVATE(/GAS/, /MINE/)
      CALLS = CALLS + 1
      FLUX(I) = GAMMA * (RHO(I) - RHO(MAX(I-1,1)))
      IF (ABS(FLUX(I)) .GT. LIMIT) FLUX(I) = SIGN(LIMIT, FLUX(I))
      END

      PROGRAM BLOCKS
      USE FIELDS
      REAL*8 GAMMA, LIMIT, DT
      INTEGER CALLS, ALL, I, K
      COMMON /GAS/ GAMMA, LIMIT
      COMMON /MINE/ CALLS
      COMMON /TIME/ DT, ALL
C$OMP THREADPRIVATE(/GAS/, /MINE/)
      DO 10 I = 1, N
        RHO(I) = 1 + MOD(I * 11, 6) * 0.25D0
   10 CONTINUE
      FLUX(0) = 0
      GAMMA = 0.4D0
      ALL = 0
      DO 50 K = 1, 5
        LIMIT = 0.2D0 + 0.01D0 * K
C$OMP PARALLEL DEFAULT(SHARED) PRIVATE(I) COPYIN(GAMMA, LIMIT)
        CALLS = 0
C$OMP MASTER
        DT = 0
        DO 20 I = 1, N
          DT = MAX(DT, RHO(I))
   20   CONTINUE
        DT = 0.5D0 / DT
C$OMP END MASTER
C$OMP DO SCHEDULE(RUNTIME)
        DO 30 I = 1, N
          CALL STEP(I)
   30   CONTINUE
C$OMP END DO NOWAIT
C$OMP BARRIER
C$OMP DO SCHEDULE(RUNTIME)
        DO 40 I = 1, N
          RHO(I) = RHO(I) - DT * (FLUX(I) - FLUX(I-1))
   40   CONTINUE
C$OMP END DO
C$OMP ATOMIC
        ALL = ALL + CALLS
C$OMP END PARALLEL
   50 CONTINUE
      PRINT '(A, I8)', 'calls    ', ALL
      PRINT '(A, ES23.15)', 'checksum ', SUM(RHO)
      END
