# The error of M~ against the number of samples, from the tables that scripts/run keeps.
# Usage: gnuplot -c run-norms.gp FOLDER
folder = ARG1
set datafile missing '-'
set logscale xy
set format x '10^{%T}'
set format y '10^{%T}'
set xlabel 'samples s'
set encoding utf8
set xrange [0.8:1300]
set grid lc rgb '#cccccc'
sigmas = '2 16 64'
colours = '#2f76b7 #d95f02 #1b7837'
colour(i) = word(colours, i)
only(i, y) = (column(1) == real(word(sigmas, i)) ? y : NaN)

do for [kind in 'png svg'] {
    if (kind eq 'png') { set terminal pngcairo size 1650,620 font 'sans,13' } \
    else { set terminal svg size 1100,420 font 'sans,12' dynamic background rgb 'white' }
    set output folder.'/norms.'.kind
    set multiplot
    do for [panel in 'spectral max'] {
        mean = panel eq 'spectral' ? 3 : 7
        bound = panel eq 'spectral' ? 5 : 9
        if (panel eq 'max') { set key outside right center reverse Left samplen 3 } else { unset key }
        set size (panel eq 'max' ? 0.57 : 0.43), 1
        set origin (panel eq 'max' ? 0.43 : 0), 0
        set title panel eq 'spectral' ? 'Spectral norm of L* − M̃' : 'Max norm of L* − M̃'
        plot for [i=1:3] folder.'/norms-iid.txt' every ::1 using 2:(only(i, column(bound))) \
                 with lines lw 1.5 dt 3 lc rgb colour(i) title 'bound at 1 %, σ = '.word(sigmas, i), \
             for [i=1:3] folder.'/norms-iid.txt' every ::1 using 2:(only(i, column(mean))) \
                 with linespoints lw 1.5 dt 2 pt 6 lc rgb colour(i) title 'iid, σ = '.word(sigmas, i), \
             for [i=1:3] folder.'/norms-stratified.txt' every ::1 using 2:(only(i, column(mean))) \
                 with linespoints lw 2 pt 7 ps 0.7 lc rgb colour(i) \
                 title 'stratified, σ = '.word(sigmas, i)
    }
    unset multiplot
    unset output
}
